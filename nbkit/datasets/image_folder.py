"""Image files in class folders, as torchvision's ImageFolder reads them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from nbkit.datasets.listing import IMAGE_SUFFIXES, Contents, Listing
from nbkit.datasets.samples import Sample
from nbkit.errors import ConfigError

__all__ = ["has_images_in_folders", "list_image_folder"]


def list_image_folder(root: Path) -> Listing:
    """Return the images in class folders.

    Either ``train/<class>/`` and, for evaluation, ``val/<class>/``; or ``<class>/``
    alone, which has no evaluation images. Folders inside a class belong to it. Names
    that begin with a dot are passed over.

    Parameters
    ----------
    root
        The folder that holds the class folders, or ``train`` and ``val``.

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
        contents = _list(root)
    except OSError as error:
        message = (
            f"data={str(root)!r}: {error.filename} cannot be read "
            f"({error.strerror}); mend its permissions or copy the data elsewhere."
        )
        raise ConfigError(message) from error
    return Listing("image folder", root, lambda: contents)


def has_images_in_folders(root: Path) -> bool:
    """Tell whether any subfolder holds an image; stops at the first."""
    return any(True for folder in _subfolders(root) for _ in _walk(root, root / folder))


def _list(root: Path) -> Contents:
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
    train = _samples(root, base, classes)
    evaluation: list[Sample] = []
    if split and (root / "val").is_dir():
        _check_known(root, _subfolders(root / "val"), classes)
        evaluation = _samples(root, root / "val", classes, may_be_empty=True)
    return Contents(classes, train, evaluation)


def _subfolders(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(
            entry.name
            for entry in entries
            if entry.is_dir() and not entry.name.startswith(".")
        )


def _samples(
    root: Path, base: Path, classes: list[str], *, may_be_empty: bool = False
) -> list[Sample]:
    """Return the images of every class, also those in folders further down."""
    samples: list[Sample] = []
    empty: list[str] = []
    for label, name in enumerate(classes):
        before = len(samples)
        samples += (Sample(path, label, None) for path in _walk(root, base / name))
        if len(samples) == before:
            empty.append(name)
    if empty and not may_be_empty:
        message = (
            f"data={str(root)!r} has {len(empty)} classes without images "
            f"({', '.join(empty[:3])}{', ...' if len(empty) > 3 else ''}), but each "
            f"needs 1 or more ({' '.join(IMAGE_SUFFIXES)}); add images or remove them."
        )
        raise ConfigError(message)
    samples.sort(key=lambda sample: sample.name)
    return samples


def _walk(root: Path, folder: Path) -> Iterator[str]:
    if not folder.is_dir():
        return
    for parent, folders, files in os.walk(folder, onerror=_raise, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        relative = os.path.relpath(parent, root)
        for name in files:
            if name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith("."):
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
