"""`make gpu-kit PYTHON=3.12`: all that a slot needs, for a machine without a network.

One folder: the slot, nbkit's wheel, and the wheels of what both import beside torch and
torchvision, which have to be there already. `README.txt` in it says how it is used.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["REQUIRED", "check_python", "check_size"]

ROOT = Path(__file__).parents[2]

REQUIRED = (
    "annotated-types",
    "cykooz.resizer",
    "google-crc32c",
    "nvidia-ml-py",
    "nvidia-nvimgcodec-cu12",
    "packaging",
    "platformdirs",
    "psutil",
    "pydantic",
    "pydantic-core",
    "typing-extensions",
    "typing-inspection",
)
"""Of processors alone, nvImageCodec needs no CUDA: any will do."""

LIMIT_BYTES = 64 * 2**20
_OLDEST_PYTHON = (3, 11)
_PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
_LEFT_OUT = ("__init__.py", "kit.py", "conftest.py")

_README = """\
On the machine with the GPU, of x86-64 and with Linux (there is no kit for ARM), in an
environment that has torch 2.7 or newer and the torchvision that belongs to it, with
Python {python}:

    python -m pip install --no-index --no-deps --target site wheels/*.whl
    export PYTHONPATH=$PWD/site
    python slot.py right holds fast

Each command takes 8 minutes at most. What was found is in build/gpu/<command>.json and
in the table at the end; the exit code is 1 if anything fell short. With two GPUs or
more, python slot.py node adds what takes several.
"""


def main() -> None:
    """Make the folder anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("python", help="of the machine with the GPU, such as 3.12")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "gpu-kit")
    arguments = parser.parse_args()
    try:
        check_python(arguments.python)
    except ValueError as error:
        sys.exit(f"gpu-kit: {error}")
    folder = arguments.folder.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    _build_wheel(wheels)
    _download(arguments.python, wheels)
    for file in sorted(Path(__file__).parent.glob("*.py")):
        if file.name not in _LEFT_OUT and not file.name.startswith("test_"):
            shutil.copy(file, folder)
    (folder / "README.txt").write_text(_README.format(python=arguments.python))
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    try:
        check_size(size)
    except ValueError as error:
        sys.exit(f"gpu-kit: {error}")
    print(
        f"{folder}: {size / 2**20:.0f} MiB, for Python {arguments.python} on Linux, "
        "x86-64 only"
    )
    print((folder / "README.txt").read_text())


def check_python(version: str) -> None:
    """Raise ValueError for what is no version of Python that nbkit runs with."""
    numbers = re.fullmatch(r"(\d+)\.(\d+)", version)
    if not numbers or tuple(map(int, numbers.groups())) < _OLDEST_PYTHON:
        message = (
            f"PYTHON={version} is no version of Python from 3.11 on; name the one of "
            "the machine with the GPU: make gpu-kit PYTHON=3.12."
        )
        raise ValueError(message)


def check_size(size_bytes: int) -> None:
    """Raise ValueError for a kit that is too large to be carried along."""
    if size_bytes >= LIMIT_BYTES:
        message = (
            f"the kit has {size_bytes / 2**20:.0f} MiB, it may have "
            f"{LIMIT_BYTES / 2**20:.0f}; take a package out of REQUIRED."
        )
        raise ValueError(message)


def _build_wheel(folder: Path) -> None:
    """Build nbkit as it is here; its part of JupyterLab is not made anew."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        env={**os.environ, "HATCH_JUPYTER_BUILDER_SKIP_NPM": "1"},
        stdout=subprocess.DEVNULL,
        check=True,
    )


def _download(python: str, folder: Path) -> None:
    platforms = [f"--platform={platform}_x86_64" for platform in _PLATFORMS]
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
            *("--only-binary=:all:", f"--python-version={python}"),
            *("--implementation=cp", *platforms, "--dest", str(folder)),
            *("--constraint", str(ROOT / ".ci" / "constraints.txt"), *REQUIRED),
        ],
        check=True,
    )


if __name__ == "__main__":
    main()
