"""What of a file is in memory, and how to have nothing of it there; without root.

``posix_fadvise(POSIX_FADV_DONTNEED)`` lets go of a file's clean pages, and ``mincore``
tells which pages are in memory. Other files stay as they are, unlike with
``/proc/sys/vm/drop_caches``. A page that a process has mapped or locked stays too,
which is why a cold run is proven and never assumed.

What is proven is the page cache of this machine. A disk, a RAID controller or the host
below a virtual machine may have caches of their own, of which nobody is told.

References
----------
https://man7.org/linux/man-pages/man2/posix_fadvise.2.html
https://man7.org/linux/man-pages/man2/mincore.2.html
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from nbkit.errors import NotColdError
from nbkit.readspeed.places import Kind, kind_of
from nbkit.telemetry.storage import describe_storage

__all__ = ["Coldness", "check_cold", "make_cold", "resident_share", "warm_up"]

_PAGE_BYTES = mmap.PAGESIZE
_WINDOW_BYTES = 2**30
"""Of a file that is looked at in one piece; a multiple of the page size."""

# Pages that are being read or written at the moment stay, and can go a moment later.
_TRIES = 5
_BETWEEN_TRIES_SECONDS = 0.1

# A file server answers in a millisecond, and many at once.
_THREADS = 16
_FILES_PER_TASK = 256
_READ_BYTES = 2**20

_LOW_BIT = bytes(value & 1 for value in range(256))
"""The other bits of what ``mincore`` writes are reserved."""
_FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True)
class Coldness:
    """What is known of the page cache before something is measured."""

    state: Literal["cold", "client cold", "not provable", "warm"]
    """``client cold``: nothing is in this machine's memory, and nobody knows what is
    in the server's. ``not provable``: pages were dropped, and it cannot be seen
    whether they went."""
    proven: bool
    """Whether everything has to come from the storage."""
    reason: str
    """Why it is so, in a few words."""
    resident_share: float | None
    """Part of the bytes that is in this machine's memory; None where nobody tells."""

    def __str__(self) -> str:
        name = {"client cold": "client cold, server unknown"}.get(
            self.state, self.state
        )
        return f"{name}{', proven' if self.proven else ''} ({self.reason})"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


def resident_share(files: Path | Sequence[Path]) -> float | None:
    """Return the part of a file's, or of several files', pages that is in memory.

    Returns
    -------
    float or None
        0 to 1; None where the kernel does not tell: it does so only to those who may
        write a file or own it (Linux 5.2 on), and reports every page as resident to
        others.
    """
    counted = _of_all(_count_resident, _as_files(files))
    if None in counted:
        return None
    pages = [one for one in counted if one is not None]
    total = sum(all_pages for _, all_pages in pages)
    return sum(resident for resident, _ in pages) / total if total else 0.0


def make_cold(files: Path | Sequence[Path]) -> Coldness:
    """Drop files from the page cache, and prove that they are gone.

    Parameters
    ----------
    files
        One file or several of one file system; they are only read.

    Returns
    -------
    Coldness
        ``cold`` and proven; ``client cold`` on a network file system; ``not provable``
        where the kernel does not tell.

    Raises
    ------
    NotColdError
        If pages stay in memory, or the file system is one.
    """
    every = _as_files(files)
    _refuse_memory(every)
    for _ in range(_TRIES - 1):
        _of_all(_drop, every)
        if not resident_share(every):
            break
        time.sleep(_BETWEEN_TRIES_SECONDS)
    else:
        _of_all(_drop, every)
    return check_cold(every)


def check_cold(files: Path | Sequence[Path]) -> Coldness:
    """Return what proves that files are cold; nothing is dropped.

    Raises
    ------
    NotColdError
        If a page is in memory, or the file system is one.
    """
    every = _as_files(files)
    kind, file_system = _refuse_memory(every)
    share = resident_share(every)
    if share:
        message = (
            f"{_named(every)}: {share:.1%} is in memory, but 0 % may be for a cold "
            "run; end what keeps the file mapped or locked (fuser -v names it), or "
            "call the run warm."
        )
        raise NotColdError(message)
    if share is None:
        reason = (
            "the kernel tells only those who may write a file which of its pages are "
            "in memory"
        )
        return Coldness("not provable", False, reason, None)
    if kind == "own cache":
        reason = f"{file_system} has a cache of its own, which nobody can ask"
        return Coldness("not provable", False, reason, share)
    if kind == "network":
        reason = f"{file_system}: no page in this machine's memory"
        return Coldness("client cold", False, reason, share)
    return Coldness("cold", True, "no page in this machine's memory", share)


def warm_up(files: Path | Sequence[Path]) -> Coldness:
    """Read files once, and return how much of them is in memory then."""
    every = _as_files(files)
    _of_all(_read_through, every)
    share = resident_share(every)
    if share is None:
        reason = "read once before; the kernel does not tell what of it stayed"
        return Coldness("warm", False, reason, None)
    reason = f"read once before; {share:.1%} in memory"
    return Coldness("warm", False, reason, share)


def _as_files(files: Path | Sequence[Path]) -> list[Path]:
    return [files] if isinstance(files, Path) else list(files)


def _named(files: Sequence[Path]) -> str:
    more = len(files) - 1
    return f"{files[0]} and {more:,} more files" if more else str(files[0])


def _refuse_memory(files: Sequence[Path]) -> tuple[Kind, str | None]:
    """Return kind and name of the file system, if it is not memory itself."""
    file_system = describe_storage(files[0])["file_system"]
    kind = kind_of(file_system)
    if kind == "memory":
        message = (
            f"{files[0]} lies on {file_system}, which is memory and never cold; name "
            "a folder on a disk or a file server, or call the run warm."
        )
        raise NotColdError(message)
    return kind, file_system


def _of_all(do: Callable[[Path], Any], files: Sequence[Path]) -> list[Any]:
    """Do something with every file, several at once; return the results in order."""
    if len(files) == 1:
        return [do(files[0])]
    tasks = [
        files[start : start + _FILES_PER_TASK]
        for start in range(0, len(files), _FILES_PER_TASK)
    ]
    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            done = list(pool.map(lambda task: [do(path) for path in task], tasks))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [result for task in done for result in task]


def _drop(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        counted = _count_resident(path)
        if counted is None or counted[0]:
            # Pages that are not on the disk yet stay. To write them costs a flush of
            # the disk, which a million unchanged files need not wait for.
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _read_through(path: Path) -> None:
    buffer = bytearray(_READ_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def _count_resident(path: Path) -> tuple[int, int] | None:
    """Return how many pages of a file are in memory, and how many there are."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        is_own = os.geteuid() in (0, found.st_uid)
        if not is_own and not os.access(path, os.W_OK, effective_ids=True):
            return None
        resident = sum(
            _resident_pages(
                descriptor, start, min(_WINDOW_BYTES, found.st_size - start)
            )
            for start in range(0, found.st_size, _WINDOW_BYTES)
        )
    finally:
        os.close(descriptor)
    return resident, -(-found.st_size // _PAGE_BYTES)


def _resident_pages(descriptor: int, offset: int, length: int) -> int:
    libc = _libc()
    address = libc.mmap(
        None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, offset
    )
    if address == _FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    try:
        pages = ctypes.create_string_buffer(-(-length // _PAGE_BYTES))
        if libc.mincore(address, length, pages):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return pages.raw.translate(_LOW_BIT).count(1)
    finally:
        libc.munmap(address, length)


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    # mmap's offset is as wide as off_t, which is a C long on 64-bit Linux.
    libc.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_long]
    libc.mmap.restype = pointer
    libc.mincore.argtypes = [pointer, size, ctypes.c_char_p]
    libc.munmap.argtypes = [pointer, size]
    return libc
