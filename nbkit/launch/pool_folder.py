"""The folder in which all users of a host lock the devices that they use."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from nbkit.errors import DeviceError

__all__ = [
    "POOL_VARIABLE",
    "READ_FLAGS",
    "allocating",
    "lock",
    "open_shared",
    "pool_errors",
    "pool_folder",
    "unlock",
]

POOL_VARIABLE = "NBKIT_POOL"
"""A folder for the pool's files; all users of a host must name the same one."""

READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Neither a link nor a pipe of another user leads astray or blocks."""

_PLACES = ("/run/lock", "/dev/shm", "/tmp")
_EVERYBODY = 0o1777
"""Everybody may make files, and remove only their own."""


def pool_folder() -> Path:
    """Return the pool's folder, made if need be.

    ``$NBKIT_POOL``, else ``nbkit`` in the first of /run/lock, /dev/shm and /tmp in
    which every user may make files: the same for everybody, whoever asks first.

    Raises
    ------
    DeviceError
        If there is none, or it cannot be made.
    """
    told = os.environ.get(POOL_VARIABLE)
    if told and not told.startswith("/"):
        message = (
            f"{POOL_VARIABLE}={told!r} means another folder wherever it is read; name "
            "it from the root on, such as /run/lock/nbkit."
        )
        raise DeviceError(message)
    pool = Path(told) if told else _first_place() / "nbkit"
    with pool_errors(pool):
        for folder in (pool, pool / "devices", pool / "claims"):
            _make(folder)
    return pool


@contextlib.contextmanager
def pool_errors(pool: Path) -> Iterator[None]:
    """Say of an error of the system that it is the pool's, and what to do now."""
    try:
        yield
    except OSError as error:
        message = (
            f"{pool}, which keeps the leases of devices, cannot be used "
            f"({error.strerror or error}); set {POOL_VARIABLE} to a folder on a local "
            "disk that every user may write."
        )
        raise DeviceError(message) from error


def _first_place() -> Path:
    for place in map(Path, _PLACES):
        with contextlib.suppress(OSError):
            if place.stat().st_mode & _EVERYBODY == _EVERYBODY:
                return place
    message = (
        f"none of {', '.join(_PLACES)} may be written by everybody; set "
        f"{POOL_VARIABLE} to a folder on a local disk for the leases of devices."
    )
    raise DeviceError(message)


def _make(folder: Path) -> None:
    with contextlib.suppress(FileExistsError):
        folder.mkdir(parents=True)
    status = folder.lstat()
    # A link could lead to files of somebody else's choice.
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(20, f"{folder} is no folder")
    # The umask took rights away that other users need.
    if status.st_uid == os.geteuid() and status.st_mode & _EVERYBODY != _EVERYBODY:
        folder.chmod(_EVERYBODY)


@contextlib.contextmanager
def allocating(pool: Path, patience_seconds: float | None = None) -> Iterator[bool]:
    """Hold the pool's lock, and say whether it is held.

    Parameters
    ----------
    pool
        What `pool_folder` returned.
    patience_seconds
        How long to wait for whoever holds it; None does not wait, and says so.

    Raises
    ------
    DeviceError
        If somebody held it for longer.
    """
    descriptor = open_shared(pool / "pool.lock")
    try:
        deadline = time.monotonic() + (patience_seconds or 0)
        while not (held := lock(descriptor, fcntl.LOCK_EX)):
            if time.monotonic() >= deadline:
                break
            time.sleep(0.005)
        if not held and patience_seconds is not None:
            message = (
                f"{pool / 'pool.lock'} was locked for {patience_seconds:.0f} s, which "
                "takes milliseconds else; lsof tells who holds it."
            )
            raise DeviceError(message)
        yield held
    finally:
        unlock(descriptor)


def open_shared(path: Path) -> int:
    """Return a descriptor of a file that any user may have made, made if need be."""
    while True:
        # Linux refuses O_CREAT on another user's file in such a folder.
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, READ_FLAGS)
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, READ_FLAGS | os.O_CREAT | os.O_EXCL, 0o644)
            os.fchmod(descriptor, 0o644)
            return descriptor


def lock(descriptor: int, kind: int) -> bool:
    """Lock a file as ``fcntl.flock`` does, without waiting; return whether it is."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Unlock and close a file.

    To close it would not do where another thread has forked meanwhile: the child has
    the file open, too.
    """
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
