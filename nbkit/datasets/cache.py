"""Folders that are created once and kept: complete, or absent."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import platformdirs

from nbkit.errors import StoreError

NAMED = {
    "photos": "photos-1",
    "synthetic-multilabel": "synthetic-multilabel-2",
    "cifar10": "cifar10",
    "imagenette": "imagenette",
}
"""Built-in sets and their folders, which have another name for other images. A folder
of the user's that has such a name is given as ``./photos``."""

NAMED_IMAGES = {
    "photos": (400, 96, 0),
    "synthetic-multilabel": (384, 96, 4),
    "cifar10": (50_000, 10_000, 0),
    "imagenette": (9_469, 3_925, 0),
}
"""How many images they have, for training and for evaluation, and labels an image."""


def cache_path(name: str) -> Path:
    """Return the folder of a built-in set, which may not exist yet."""
    return platformdirs.user_cache_path("nbkit", appauthor=False) / NAMED[name]


def cached_folder(name: str, make: Callable[[Path], None]) -> Path:
    """Return a built-in set's folder, created if missing."""
    folder = cache_path(name)
    if folder.is_dir():
        return folder
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    try:
        temporary.mkdir(parents=True)
        make(temporary)
        try:
            temporary.rename(folder)
        except OSError:
            # Another process was done first.
            if not folder.is_dir():
                raise
    except OSError as error:
        message = (
            f"{folder} cannot be created ({error}). Free some space, or set "
            "XDG_CACHE_HOME to a writable folder."
        )
        raise StoreError(message) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder
