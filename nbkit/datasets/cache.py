"""Folders that are made once and kept: all of one is there, or nothing."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import platformdirs

from nbkit.errors import StoreError

__all__ = ["NAMED", "cache_path", "cached_folder"]

NAMED = ("photos", "cifar10", "imagenette")
"""Built-in sets; a folder of that name is given as ``./photos``."""


def cache_path(name: str) -> Path:
    """Return where a folder of the user's cache lies."""
    return platformdirs.user_cache_path("nbkit", appauthor=False) / name


def cached_folder(name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder of the user's cache, which is made if it is not there yet.

    Parameters
    ----------
    name
        Of the folder; another one for other content.
    make
        Fills the empty folder that it is given. Processes that find nothing at the same
        time all make it; the first to be done is kept.

    Raises
    ------
    StoreError
        If the cache cannot be written.
    """
    folder = cache_path(name)
    if folder.is_dir():
        return folder
    temporary = folder.with_name(f".{name}.{uuid.uuid4().hex}")
    try:
        temporary.mkdir(parents=True)
        make(temporary)
        try:
            temporary.rename(folder)
        except OSError:
            # Somebody else was done first.
            if not folder.is_dir():
                raise
    except OSError as error:
        message = (
            f"{folder} cannot be written ({error.strerror or error}); free some space, "
            "or set XDG_CACHE_HOME to a folder that you may write."
        )
        raise StoreError(message) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return folder
