"""A lock that ends with its process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nbkit.store.metrics import store_error
from nbkit.store.record import OWNERS


@contextmanager
def locked(path: Path) -> Iterator[bool | None]:
    """Lock a file, which is made if it is missing, and stays.

    Yields whether this process has the lock: False if another one has it, None where
    the file system has no locks. The lock may be one of this host alone, as on some NFS
    mounts.
    """
    # NFS locks only what can be written, and no folder.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, OWNERS)
    except OSError as error:
        raise store_error(path, error) from error
    try:
        yield _lock(descriptor)
    finally:
        # A process that was forked meanwhile has the file open, too.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
