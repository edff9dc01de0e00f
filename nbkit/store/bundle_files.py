"""Files of a run's folder that belong into a bundle, and why others do not."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from nbkit.store.paths import RunPaths
from nbkit.visible import encodable, visible

_ODD_FILE = "a link, or not a regular file"
_CONTROL = "its name has a control character"
_NOT_UTF8 = "its name is not UTF-8"
ODD = (_ODD_FILE, _CONTROL, _NOT_UTF8)
"""Why files are left out that a user may miss."""


def files_of_run(root: Path) -> Iterator[tuple[str, Path, str | None]]:
    """Yield what is in a run's folder: its name there, its path, and why not.

    The last is None for what belongs into a bundle, else the reason why it does not.
    Folders are yielded only where all that is in them is left out.
    """
    for folder, folders, files in os.walk(root, onerror=_raise):
        here = Path(folder)
        for name in sorted(folders):
            path = here / name
            if path.is_symlink():
                folders.remove(name)
                yield _name(path, root), path, _ODD_FILE
        folders.sort()
        for name in sorted(files):
            path = here / name
            yield _name(path, root), path, _why_not(path, root)


def _raise(error: OSError) -> None:
    raise error  # a folder that cannot be read is not left out in silence


def _name(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _why_not(path: Path, root: Path) -> str | None:
    if not stat.S_ISREG(path.lstat().st_mode):
        return _ODD_FILE
    if path == RunPaths(root).imported:
        return "written by an import"
    name = _name(path, root)
    if encodable(name, None) != name:
        return _NOT_UTF8
    if visible(name) != name:
        return _CONTROL
    parts = name.split("/")
    is_temporary = any(part.startswith(".") for part in parts) or path.suffix == ".tmp"
    if is_temporary:
        return "a temporary file"
    return None
