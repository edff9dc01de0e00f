"""Names in folders of images, broken links and unreadable entries."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nbkit.errors import ConfigError, StoreError

_OF_THE_DISK = "lost+found"
"""In the top folder of a disk; only root may read it."""


def names_in(folder: Path | str) -> tuple[list[str], list[str]]:
    """Return the sorted names of folders, and those of files, without hidden ones."""
    folders: list[str] = []
    files: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_hidden(entry.name):
                continue
            # A link to itself is no folder, and not an error.
            is_folder = (
                os.path.isdir(entry.path)  # noqa: PTH112 - of text
                if entry.is_symlink()
                else entry.is_dir()
            )
            (folders if is_folder else files).append(entry.name)
    return sorted(folders), files


def subfolders(folder: Path) -> list[str]:
    """Return the names of folders, sorted, without hidden ones."""
    return names_in(folder)[0]


def is_hidden(name: str) -> bool:
    """Return whether files and folders with this name are skipped."""
    return name.startswith(".") or name == _OF_THE_DISK


def check_links(
    root: Path, folder: Path, matters: Callable[[str], object] = lambda name: True
) -> None:
    """Raise for a link that cannot be followed: a folder would be missing."""
    for path in sorted(folder.iterdir()):
        if is_hidden(path.name) or not matters(path.name) or not path.is_symlink():
            continue
        try:
            path.stat()
        except OSError as error:
            message = (
                f"data={str(root)!r}: {path} is a link to {os.readlink(path)!r}, "  # noqa: PTH115
                f"which cannot be followed ({error.strerror}). Restore its target, or "
                "remove the link."
            )
            raise ConfigError(message) from error


@contextmanager
def readable(root: Path) -> Iterator[None]:
    """Turn an error of reading a folder into a `ConfigError`."""
    try:
        yield
    except StoreError as error:
        message = f"data={str(root)!r}: {error}"
        raise ConfigError(message) from error
    except OSError as error:
        message = (
            f"data={str(root)!r}: {error.filename or 'a file'} cannot be read "
            f"({error.strerror}). Fix its permissions, or copy the data elsewhere."
        )
        raise ConfigError(message) from error
