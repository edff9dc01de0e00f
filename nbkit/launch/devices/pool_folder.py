"""The folder with the device locks of all users of a host."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from nbkit.errors import DeviceError
from nbkit.telemetry.processes import user_name

POOL_VARIABLE = "NBKIT_POOL"
"""A folder for the pool's files; all users of a host must name the same one."""

READ_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Neither a link nor a pipe of another user leads astray or blocks."""

_PLACES = ("/run/lock", "/dev/shm", "/tmp")
_EVERYBODY = 0o1777
"""All users may make files, and remove only their own."""


def pool_folder() -> Path:
    """Return the pool's folder, made if need be.

    ``$NBKIT_POOL``, else ``nbkit`` in the first of /run/lock, /dev/shm and /tmp in
    which every user may make files: the same for all users, whichever asks first.
    """
    setting = os.environ.get(POOL_VARIABLE)
    if setting and not setting.startswith("/"):
        message = (
            f"{POOL_VARIABLE}={setting!r} is a relative path. Use an absolute path, "
            "such as /run/lock/nbkit."
        )
        raise DeviceError(message)
    pool = Path(setting) if setting else _first_place() / "nbkit"
    with pool_errors(pool):
        _make(pool)
        _check(pool)
    return pool


@contextlib.contextmanager
def pool_errors(pool: Path) -> Iterator[None]:
    """Say of an error of the system that it is the pool's, and what to do now."""
    try:
        yield
    except OSError as error:
        message = (
            f"{pool}, the device pool, cannot be used ({error.strerror or error}). "
            f"Set {POOL_VARIABLE} to a folder on a local disk that every user can "
            "write to."
        )
        raise DeviceError(message) from error


def _first_place() -> Path:
    for place in map(Path, _PLACES):
        with contextlib.suppress(OSError):
            if place.stat().st_mode & _EVERYBODY == _EVERYBODY:
                return place
    message = (
        f"None of {', '.join(_PLACES)} is writable by all users. Set "
        f"{POOL_VARIABLE} to a folder on a local disk for the device pool."
    )
    raise DeviceError(message)


def _folders(pool: Path) -> tuple[Path, ...]:
    return pool, pool / "devices", pool / "claims"


def _make(pool: Path) -> None:
    """Make what is missing of a pool that is not there, or is this user's own."""
    if not os.path.lexists(pool):
        pool.parent.mkdir(parents=True, exist_ok=True)
        # No process ever sees a part of it, and two users never make one together.
        made = Path(tempfile.mkdtemp(prefix=f".{pool.name}-", dir=pool.parent))
        try:
            _make_own(made)
            with contextlib.suppress(OSError):  # another process was faster
                made.rename(pool)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    elif _owner_and_mode(pool)[0] == os.geteuid():
        _make_own(pool)


def _make_own(pool: Path) -> None:
    for folder in _folders(pool):
        folder.mkdir(exist_ok=True)
        owner, mode = _owner_and_mode(folder)
        # The umask took rights away that other users need.
        if owner == os.geteuid() and mode & _EVERYBODY != _EVERYBODY:
            folder.chmod(_EVERYBODY)


def _check(pool: Path) -> None:
    """Raise unless all users may make files in a pool, and remove only their own.

    The owner of a folder may remove any file in it, so all users have to trust one
    owner, and not two.
    """
    owner = _owner_and_mode(pool)[0]
    missing = [folder for folder in _folders(pool) if not os.path.lexists(folder)]
    if missing:
        message = (
            f"The device pool {pool} lacks "
            f"{' and '.join(f'{folder.name}/' for folder in missing)}. Ask its owner, "
            f"{user_name(owner)}, to run `mkdir -m 1777 "
            f"{shlex.join(map(str, missing))}`."
        )
        raise DeviceError(message)
    modes = {folder: _owner_and_mode(folder) for folder in _folders(pool)}
    for folder, (uid, mode) in modes.items():
        if uid != owner or mode & _EVERYBODY != _EVERYBODY:
            who = " or ".join(dict.fromkeys((user_name(owner), "root")))
            message = (
                f"{folder} belongs to {user_name(uid)} and has mode {mode:o}, but all "
                "folders of a device pool require mode 1777 and the same owner "
                f"({pool}: {user_name(owner)}). Ask {who} to remove {pool}, or set "
                f"{POOL_VARIABLE} to another folder for all users."
            )
            raise DeviceError(message)


def _owner_and_mode(folder: Path) -> tuple[int, int]:
    status = folder.lstat()
    # A link could lead to files of another user's choice.
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(20, f"{folder} is not a folder")
    return status.st_uid, stat.S_IMODE(status.st_mode)


@contextlib.contextmanager
def allocating(pool: Path, patience_seconds: float | None = None) -> Iterator[bool]:
    """Hold the pool's lock, and say whether it is held."""
    descriptor = open_shared(pool / "pool.lock")
    try:
        deadline = time.monotonic() + (patience_seconds or 0)
        while not (held := lock(descriptor, fcntl.LOCK_EX)):
            if time.monotonic() >= deadline:
                break
            time.sleep(0.005)
        if not held and patience_seconds is not None:
            message = (
                f"{pool / 'pool.lock'} has been locked for {patience_seconds:.0f} s "
                "(normal: milliseconds). Find the process with `sudo lslocks`, and "
                "end it."
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
