"""`python -m nbkit.worker.data.download NAME FOLDER`: download with torchvision.

Progress goes to the standard error, and the reason of a failure, in one line, to the
standard output.
"""

from __future__ import annotations

import shutil
import socket
import sys
from pathlib import Path

from torchvision.datasets import CIFAR10, Imagenette

ANSWER_SECONDS = 30.0
"""How long a server may be silent."""

_IMAGENETTE_SIZE = "320px"


def download(name: str, folder: Path) -> None:
    """Fill a folder with ``train/<class>/`` and ``val/<class>/``."""
    downloaded = folder / "download"
    if name == "cifar10":
        _download_cifar10(downloaded, folder)
    else:
        Imagenette(downloaded, size=_IMAGENETTE_SIZE, download=True)
        (extracted,) = (path for path in downloaded.iterdir() if path.is_dir())
        for split in ("train", "val"):
            (extracted / split).rename(folder / split)
    shutil.rmtree(downloaded)


def _download_cifar10(downloaded: Path, folder: Path) -> None:
    for split in ("train", "val"):
        images = CIFAR10(downloaded, train=split == "train", download=True)
        for class_name in images.classes:
            (folder / split / class_name).mkdir(parents=True)
        for number in range(len(images)):
            image, label = images[number]
            image.save(folder / split / images.classes[label] / f"{number:05}.png")


def main(arguments: list[str]) -> int:
    """Download what the arguments say; return the exit status."""
    name, folder = arguments
    # Without this, a server that never answers is waited for for ever.
    socket.setdefaulttimeout(ANSWER_SECONDS)
    try:
        download(name, Path(folder))
    except (OSError, RuntimeError) as error:
        text = str(error) or type(error).__name__
        sys.stdout.write(f"{text.splitlines()[0]}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
