"""One process at a time resumes a run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["one_at_a_time"]


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let one process of this user at a time resume a run."""
    path = Path(tempfile.gettempdir()) / f"nbkit-resuming-{os.getuid()}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
