"""Image files in class folders: which there are, and what identifies them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from nbkit.errors import ConfigError

__all__ = ["ImageFiles", "ImageFolder"]

# What torchvision's ImageFolder takes:
# https://docs.pytorch.org/vision/stable/generated/torchvision.datasets.ImageFolder.html
_SUFFIXES = (
    ".jpg",
    ".jpeg",
    ".png",
    ".ppm",
    ".bmp",
    ".pgm",
    ".tif",
    ".tiff",
    ".webp",
)

# A network file system answers in a millisecond, one after the other: a million files
# would take longer than a rank may stay silent. The kernel answers many at once.
_STAT_THREADS = 16
_FILES_PER_TASK = 256


class ImageFiles:
    """Paths and labels of image files, by index.

    The paths lie in one block of bytes. A million Python strings would be copied into
    every loading process, one after the other, because using an object writes its
    reference count.

    Parameters
    ----------
    root
        The folder that names are relative to.
    names
        Paths of the files.
    labels
        Class index of each.
    """

    def __init__(self, root: Path, names: list[str], labels: list[int]) -> None:
        encoded = [os.fsencode(name) for name in names]
        self._root = root
        self._names = b"".join(encoded)
        self._ends = torch.tensor([0, *accumulate(map(len, encoded))])
        self._labels = torch.tensor(labels)

    def __len__(self) -> int:
        return len(self._labels)

    def name(self, index: int) -> str:
        """Return a file's path below the root."""
        start, end = self._ends[index : index + 2].tolist()
        return os.fsdecode(self._names[start:end])

    def path(self, index: int) -> Path:
        """Return a file's path."""
        return self._root / self.name(index)

    def label(self, index: int) -> int:
        """Return a file's class."""
        return int(self._labels[index])


@dataclass(frozen=True)
class ImageFolder:
    """The classes of a data set and its files.

    Either ``train/<class>/`` and, for evaluation, ``val/<class>/``; or ``<class>/``
    alone, which has no evaluation images. Names that begin with a dot are passed over.
    """

    root: Path
    classes: list[str]
    train: ImageFiles
    evaluation: ImageFiles | None

    @classmethod
    def read(cls, root: Path) -> ImageFolder:
        """Return the data set in a folder.

        Raises
        ------
        ConfigError
            If the folder is missing, unreadable, or not laid out as above.
        """
        if not root.is_dir():
            found = "is a file" if root.exists() else "does not exist"
            message = (
                f"data={str(root)!r} {found}; give the path of a folder of images, or "
                "'synthetic'."
            )
            raise ConfigError(message)
        try:
            return cls._read(root)
        except OSError as error:
            message = (
                f"data={str(root)!r}: {error.filename} cannot be read "
                f"({error.strerror}); mend its permissions or copy the data elsewhere."
            )
            raise ConfigError(message) from error

    @classmethod
    def _read(cls, root: Path) -> ImageFolder:
        # A class may be called "train": it then holds images, not classes.
        split = (root / "train").is_dir() and bool(_subfolders(root / "train"))
        base = root / "train" if split else root
        classes = _subfolders(base)
        if len(classes) < 2:
            message = (
                f"data={str(root)!r} has {len(classes)} class folders in {base}, but "
                "a classifier needs 2 or more; put the images of each class into a "
                "subfolder of its own, or into train/<class>/ and val/<class>/."
            )
            raise ConfigError(message)
        train = _files(root, base, classes)
        evaluation = None
        if split and (root / "val").is_dir():
            _check_known(root, _subfolders(root / "val"), classes)
            evaluation = _files(root, root / "val", classes, may_be_empty=True)
        return cls(root, classes, train, evaluation or None)

    def fingerprint(self) -> dict[str, Any]:
        """Return what tells this data set from others without reading the images.

        Returns
        -------
        dict
            ``source``, ``files``, ``bytes`` and ``sha256`` of the listing: path and
            size in bytes of every file, in order.

        Raises
        ------
        ConfigError
            If a file has gone since the listing.
        """
        digest = hashlib.sha256()
        total_bytes = count = 0
        try:
            with ThreadPoolExecutor(_STAT_THREADS) as pool:
                # The results come in the order of the tasks.
                for lines, files, size in pool.map(self._listing, self._tasks()):
                    digest.update(lines)
                    count += files
                    total_bytes += size
        except OSError as error:
            message = (
                f"data={str(self.root)!r}: {error.filename} is gone "
                f"({error.strerror}); leave the data in place while a run uses it."
            )
            raise ConfigError(message) from error
        return {
            "source": str(self.root),
            "files": count,
            "bytes": total_bytes,
            "sha256": digest.hexdigest(),
        }

    def _tasks(self) -> Iterator[tuple[ImageFiles, int]]:
        for files in (self.train, self.evaluation):
            if files is not None:
                for start in range(0, len(files), _FILES_PER_TASK):
                    yield files, start

    def _listing(self, task: tuple[ImageFiles, int]) -> tuple[bytes, int, int]:
        """Return the lines of some files, their number and their bytes."""
        files, start = task
        names = map(files.name, range(start, min(start + _FILES_PER_TASK, len(files))))
        lines = []
        total_bytes = 0
        for name in names:
            size = (self.root / name).stat().st_size
            lines.append(os.fsencode(name) + f"\0{size}\n".encode())
            total_bytes += size
        return b"".join(lines), len(lines), total_bytes


def _subfolders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(
            entry.name
            for entry in entries
            if entry.is_dir() and not entry.name.startswith(".")
        )


def _files(
    root: Path, base: Path, classes: list[str], *, may_be_empty: bool = False
) -> ImageFiles:
    """Return the images of every class, also those in folders further down."""
    names: list[str] = []
    labels: list[int] = []
    empty: list[str] = []
    for label, name in enumerate(classes):
        before = len(names)
        names += _walk(root, base / name)
        labels += [label] * (len(names) - before)
        if len(names) == before:
            empty.append(name)
    if empty and not may_be_empty:
        message = (
            f"data={str(root)!r} has {len(empty)} classes without images "
            f"({', '.join(empty[:3])}{', ...' if len(empty) > 3 else ''}), but each "
            f"needs 1 or more ({' '.join(_SUFFIXES)}); add images or remove them."
        )
        raise ConfigError(message)
    return ImageFiles(root, names, labels)


def _walk(root: Path, folder: Path) -> Iterator[str]:
    if not folder.is_dir():
        return
    for parent, folders, files in os.walk(folder, onerror=_raise, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        relative = os.path.relpath(parent, root)
        for name in sorted(files):
            if name.lower().endswith(_SUFFIXES) and not name.startswith("."):
                yield f"{relative}/{name}"


def _raise(error: OSError) -> None:
    raise error


def _check_known(root: Path, names: list[str], classes: list[str]) -> None:
    unknown = sorted(set(names) - set(classes))
    if unknown:
        message = (
            f"data={str(root)!r}: val/ has {len(unknown)} classes that train/ has not "
            f"({', '.join(unknown[:3])}{', ...' if len(unknown) > 3 else ''}); "
            "use the same class folders in both."
        )
        raise ConfigError(message)
