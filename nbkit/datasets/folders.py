"""The names in folders, of a data set and of what is beside it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from nbkit.datasets.splits import split_of
from nbkit.errors import ConfigError

_OF_THE_DISK = "lost+found"
"""In the top folder of a disk; only root may read it."""


class Names(NamedTuple):
    """The names in a folder; files are everything else than folders."""

    folders: list[str]
    files: list[str]
    hidden_folders: list[str]
    hidden_files: list[str]


def all_names_in(folder: Path | str) -> Names:
    """Return the names of folders and of everything else, also of hidden ones."""
    names = Names([], [], [], [])
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name == _OF_THE_DISK:
                continue
            folders, files = names[2:] if _is_hidden(entry.name) else names[:2]
            (folders if _is_folder(entry) else files).append(entry.name)
    return names


def names_in(folder: Path | str) -> tuple[list[str], list[str]]:
    """Return the names of folders, and of everything else."""
    return all_names_in(folder)[:2]


def subfolders(folder: Path) -> list[str]:
    """Return the names of folders, sorted."""
    return sorted(names_in(folder)[0])


def files_below(top: Path, *, further: bool = True) -> Iterator[tuple[str, str]]:
    """Yield the files in a folder that may be none of the data's, and further down.

    Each with the folder that it is in. A folder that may not be read, or has just gone,
    has none. Links may lead anywhere: of those in the top folder, which may be classes,
    only the files directly in theirs are yielded, and others are not followed.
    """
    waiting = [(str(top), further)]
    while waiting:
        here, goes_on = waiting.pop()
        with suppress(PermissionError, FileNotFoundError):
            folders, files = names_in(here)
            yield from ((here, name) for name in files)
            for name in folders if goes_on else ():
                path = f"{here}/{name}"
                is_link = _is_link(path)
                if here == str(top) or not is_link:
                    waiting.append((path, not is_link))


def check_splits(root: Path, *, has_validation: bool) -> Counter[str]:
    """Refuse a split that is a link to nothing; count a test that val replaces."""
    unused = {None, "test"} if has_validation else {None}
    check_links(root, root, lambda name: split_of(name) not in unused)
    links = _broken_links(root, lambda name: split_of(name) == "test")
    return Counter(f"{link.name}/ by a link to nothing" for link, _ in links)


def check_links(root: Path, folder: Path, matters: Callable[[str], bool]) -> None:
    """Refuse a link that cannot be followed: a folder of the data would be missing."""
    for link, error in _broken_links(folder, matters):
        message = (
            f"data={str(root)!r}: {link.path} is a link to "
            f"{os.readlink(link.path)!r}, which cannot be followed "  # noqa: PTH115
            f"({error.strerror}), so that a part of the data is missing; restore "
            "what it leads to, or remove the link."
        )
        raise ConfigError(message) from error


def _broken_links(
    folder: Path, matters: Callable[[str], bool]
) -> Iterator[tuple[os.DirEntry[str], OSError]]:
    """Yield links that cannot be followed, and why, by their names."""
    with os.scandir(folder) as entries:
        links = [entry for entry in entries if entry.is_symlink()]
    for link in sorted(links, key=lambda link: link.name):
        if _is_hidden(link.name) or not matters(link.name):
            continue
        try:
            link.stat()
        except OSError as error:
            yield link, error


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == _OF_THE_DISK


def _is_folder(entry: os.DirEntry[str]) -> bool:
    # A link to itself is none, and not an error.
    if entry.is_symlink():
        return os.path.isdir(entry.path)  # noqa: PTH112 - a million entries
    return entry.is_dir()


def _is_link(path: str) -> bool:
    return os.path.islink(path)  # noqa: PTH114 - of text
