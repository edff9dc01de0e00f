"""Owner of a run: files that only the owner can write, and the mark of imports.

What a run executes is in its folder: a user who can write there executes code as the
run's owner. A umask that gives write to a group is meant for other files, and is not
followed here; one that takes more away is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from nbkit.errors import StoreError
from nbkit.store.record import OWNERS, read_json

FOLDER_MODE = 0o755
"""Of a folder that has to be new, for ``mkdir``; see `make_folder`."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_OF_MANY = ("runs", "studies")
"""Folders of a store that hold those of its runs and studies."""
_LONGEST_HOST = 64
"""Characters of a host's name, by Linux."""


def make_folder(path: Path, below: Path | None = None) -> None:
    """Make a folder and all above it that are missing, up to `below`, a run's own."""
    parents = [it for it in path.parents if below is None or below in it.parents]
    missing = [parent for parent in parents if not parent.exists()]
    for folder in reversed([path, *missing]):
        folder.mkdir(FOLDER_MODE, exist_ok=True)


def open_new(path: Path) -> BinaryIO:
    """Open an empty file for writing, replacing what was there."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, OWNERS), "wb")


def open_to_append(path: Path) -> BinaryIO:
    """Open a file for writing at its end, and not what a link leads to."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    return os.fdopen(os.open(path, flags, OWNERS), "ab")


def write_file(path: Path, content: bytes) -> None:
    """Write a file, replacing what was there."""
    with open_new(path) as file:
        file.write(content)


def what_others_own(paths: Iterable[Path]) -> str | None:
    """Return which file or folder another user owns or can write; None if none.

    Nothing below a folder is looked at: who cannot write there cannot put it there.
    """
    me = os.geteuid()
    for path, status in _statuses(paths):
        if status.st_uid != me:
            return f"{path} belongs to uid {status.st_uid}, not to uid {me}"
        if status.st_mode & _OTHERS_WRITE and not stat.S_ISLNK(status.st_mode):
            mode = stat.S_IMODE(status.st_mode)
            return f"{path} can be written by its group or by others (mode {mode:04o})"
    return None


def is_of_others(mark: Path, paths: Iterable[Path]) -> bool:
    """Tell whether a run or study was imported, or others can write its files."""
    return imported_from(mark) is not None or what_others_own(paths) is not None


def imported_from(mark: Path, *, thorough: bool = False) -> str | None:
    """Return the host that a run or study was imported from; None if it was not."""
    marks = [mark]
    if thorough or mark.parent.is_symlink():
        marks += _marks_around(mark)
    existing = next(filter(os.path.lexists, marks), None)
    if existing is None:
        return None
    try:
        host = str((read_json(existing) or {}).get("host") or "")
    except StoreError:
        host = ""  # whatever is in it, it is there
    return "".join(filter(str.isprintable, host))[:_LONGEST_HOST] or "another machine"


def was_submitted_elsewhere(submission: Path, mark: Path) -> bool:
    """Tell whether a run's last attempt came with an import, not from here."""
    try:
        imported = read_json(mark)
        if imported is None:
            return False
        last = submitted(submission)
        return imported.get("submitted", last) == last
    except OSError:
        return True


def submitted(submission: Path) -> list[Any]:
    """Return number and time of a run's last attempt, from ``submission.json``."""
    values = read_json(submission) or {}
    return [values.get("attempt"), values.get("time")]


def _marks_around(mark: Path) -> Iterator[Path]:
    """Yield the marks of all runs and studies that a folder really is in."""
    real = mark.parent.resolve()
    for folder in (real, *real.parents):
        if folder.parent.name in _OF_MANY:
            yield folder / mark.name


def _statuses(paths: Iterable[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    for path in paths:
        with suppress(FileNotFoundError):
            yield path, path.stat()
            if path.is_symlink():  # who made it chose where it leads
                yield path, path.lstat()
