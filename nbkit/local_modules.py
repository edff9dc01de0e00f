"""Modules of the user, as opposed to those that a package manager installed."""

from __future__ import annotations

import functools
import os
import site
import sysconfig
from pathlib import Path


def is_local(module: object) -> bool:
    """Return whether something in ``sys.modules`` is a file of the user's.

    A module that makes its attributes when they are asked for is not asked.
    """
    try:
        file = vars(module).get("__file__")
    except TypeError:
        return False  # something else that a program has put there
    if not isinstance(file, str) or not file.endswith(".py"):
        return False
    if file.startswith(_installed()):
        return False  # of nearly all, without a read of the disk
    return not str(Path(file).resolve()).startswith(_installed())


@functools.cache
def _installed() -> tuple[str, ...]:
    """Return the folders of the standard library, of packages, and of nbkit."""
    folders = [sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    folders.append(str(Path(__file__).parent))
    paths = [path for folder in folders for path in (folder, Path(folder).resolve())]
    return tuple(f"{path}{os.sep}" for path in paths)
