"""Network file systems: fresh directory listings, and the server's clock."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def refresh_nfs_cache(folder: Path) -> None:
    """Have NFS look again which files a folder has, as it does when one opens it."""
    with contextlib.suppress(OSError):
        os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def age_seconds(path: Path) -> float:
    """Return how long ago a file or folder was changed, by its file system's clock."""
    with tempfile.TemporaryFile(dir=path.parent) as now:
        return os.fstat(now.fileno()).st_mtime - path.stat().st_mtime
