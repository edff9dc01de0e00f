"""What a file system of several hosts needs, so that a reader sees what is new."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["see_anew"]


def see_anew(folder: Path) -> None:
    """Have a network file system look again which files the folder has now.

    NFS may answer from memory for a minute, but not who opens a folder (nfs(5),
    "Close-to-open cache consistency").
    """
    with contextlib.suppress(OSError):
        os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
