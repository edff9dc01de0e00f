"""Page cache of a file: its resident share, and its release without root.

``posix_fadvise(POSIX_FADV_DONTNEED)`` lets go of a file's clean pages, and ``mincore``
tells which pages are in memory. Other files stay as they are, unlike with
``/proc/sys/vm/drop_caches``. A page that a process has mapped or locked stays too,
which is why a cold run is proven and never assumed. An empty page cache alone proves
nothing either: holes, and blocks that were only reserved, are zeros that no device ever
delivers. So the bytes that arrive while the files are read belong to the proof.

What is proven is the page cache of this machine. A disk, a RAID controller or the host
below a virtual machine may have its own cache, which cannot be seen from here.

References
----------
https://man7.org/linux/man-pages/man2/posix_fadvise.2.html
https://man7.org/linux/man-pages/man2/mincore.2.html
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import mmap
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from nbkit.errors import PageCacheError
from nbkit.plural import plural
from nbkit.reading import descriptor_of, open_regular
from nbkit.readspeed.places import storage_kind, unproven_because
from nbkit.statistics import size_in_words
from nbkit.telemetry.storage import describe_storage

_PAGE_BYTES = mmap.PAGESIZE
_WINDOW_BYTES = 2**30
"""Of a file that is looked at in one piece; a multiple of the page size."""

# Pages that are being read or written at the moment stay, and can go a moment later.
_TRIES = 5
_BETWEEN_TRIES_SECONDS = 0.1

# A file server answers in a millisecond, and many requests together.
_THREADS = 16
_FILES_PER_TASK = 256
_READ_BYTES = 2**20

_ARRIVED_AT_LEAST = 0.5
"""Part of what was read that must have arrived from the storage. Less than all, for
file systems that compress."""

_WARM_FROM = 0.99
"""Part in memory below which reads are in part those of the storage."""

_LOW_BIT = bytes(value & 1 for value in range(256))
"""The other bits of what ``mincore`` writes are reserved."""
_FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True)
class PageCacheState:
    """State of the page cache before a measurement."""

    state: Literal["cold", "client cold", "not provable", "not proven", "warm"]
    """``client cold``: no page is in this machine's memory; the server's cache is
    unknown. ``not provable``: pages were dropped, but it cannot be verified that they
    are gone, or a lower cache may still hold them. ``not proven``: too few bytes came
    from the device, as for a file with holes."""
    proven: bool
    """Whether all bytes must come from the storage."""
    reason: str
    """Reason for the state, in a few words."""
    resident_share: float | None
    """Share of the bytes in this machine's memory; None if unknown."""

    @property
    def name(self) -> str:
        """The state in words, such as ``client cold, server unknown``."""
        if self.state == "client cold":
            return "client cold, server unknown"
        if self.state != "warm":
            return self.state
        if self.resident_share is None:
            return "warm, share unknown"
        is_whole = self.resident_share >= _WARM_FROM
        return "warm" if is_whole else f"{_percent(self.resident_share, 0)} warm"

    def __str__(self) -> str:
        return f"{self.name}{', proven' if self.proven else ''} ({self.reason})"

    def after_reading(
        self, device_bytes: int | None, read_bytes: int
    ) -> PageCacheState:
        """Return the state, corrected by the bytes that came from the device."""
        if self.state == "warm":
            return self
        if device_bytes is None:
            if not self.proven:
                return self
            reason = f"{self.reason}; no device counter covers these reads"
            return replace(self, proven=False, reason=reason)
        if missing := missing_bytes(device_bytes, read_bytes):
            reason = f"{missing} came from the device"
            return replace(self, state="not proven", proven=False, reason=reason)
        part = device_bytes / read_bytes
        if part >= _WARM_FROM:
            return self
        detail = f"{part * 100:.0f}% of the bytes came from the device"
        return replace(self, reason=f"{self.reason}; {detail}")

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


def missing_bytes(arrived_bytes: float, read_bytes: float) -> str | None:
    """Return ``4 KiB of 256 MiB`` if too few bytes arrived, else None."""
    if arrived_bytes >= _ARRIVED_AT_LEAST * read_bytes:
        return None
    return f"{size_in_words(arrived_bytes)} of {size_in_words(read_bytes)}"


def resident_share(
    files: Path | Sequence[Path], extents: Mapping[Path, int] | None = None
) -> float | None:
    """Return the share of the pages of one or more files that is in memory.

    Parameters
    ----------
    files
        One file or several.
    extents
        Number of leading bytes of each file to consider; None for all.

    Returns
    -------
    float or None
        0 to 1; None if it is unknown. Since Linux 5.2, the kernel reports this only to
        a file's owner and to users who may write to it; some file systems have no
        ``mmap``.
    """
    ends = extents or {}
    counted = _map_files(
        lambda path: _count_resident(path, ends.get(path)), _as_files(files)
    )
    if None in counted:
        return None
    pages = [pair for pair in counted if pair is not None]
    total = sum(all_pages for _, all_pages in pages)
    return sum(resident for resident, _ in pages) / total if total else 0.0


def drop_page_cache(files: Path | Sequence[Path]) -> PageCacheState:
    """Drop files from the page cache, and verify that no page is left.

    Parameters
    ----------
    files
        One file or several; they are only read.

    Returns
    -------
    PageCacheState
        ``cold`` and proven; ``client cold`` on a network file system; ``not provable``
        if the kernel does not report a file's pages, or a lower cache may hold them.
        Of several files, the least certain state.

    Raises
    ------
    PageCacheError
        If pages stay in the page cache, or the file system is in memory.
    """
    paths = _as_files(files)
    _refuse_memory(one_of_each_device(paths))
    for _ in range(_TRIES - 1):
        _map_files(_drop, paths)
        if not resident_share(paths):
            break
        time.sleep(_BETWEEN_TRIES_SECONDS)
    else:
        _map_files(_drop, paths)
    return check_cold(paths)


def check_cold(files: Path | Sequence[Path]) -> PageCacheState:
    """Return the page cache state of cold files, without dropping pages.

    Raises
    ------
    PageCacheError
        If a page is in the page cache, or the file system is in memory.
    """
    paths = _as_files(files)
    storages = _refuse_memory(one_of_each_device(paths))
    share = resident_share(paths)
    if share:
        more = f" and {plural(len(paths) - 1, 'more file')}" if len(paths) > 1 else ""
        message = (
            f"{paths[0]}{more}: {_percent(share)} is in the page cache (limit 0% for a "
            "cold run). Call drop_page_cache; if pages stay, stop the process that "
            "maps or locks a file (fuser -v), or use cache='warm'."
        )
        raise PageCacheError(message)
    if share is None:
        reason = (
            "the cached pages of a file are visible only to its owner and to users "
            "with write permission, and on some file systems to no user"
        )
        return PageCacheState("not provable", False, reason, None)
    for path, storage in storages.items():
        reason = unproven_because(storage, path)
        if reason is not None:
            return PageCacheState("not provable", False, reason, share)
    for storage in storages.values():
        if storage_kind(storage["file_system"]) == "network":
            reason = f"{storage['file_system']}: no page in this machine's memory"
            return PageCacheState("client cold", False, reason, share)
    return PageCacheState("cold", True, "no page in this machine's memory", share)


def fill_page_cache(files: Path | Sequence[Path]) -> PageCacheState:
    """Read files once, and return the page cache state afterwards."""
    paths = _as_files(files)
    is_over = threading.Event()
    _map_files(lambda path: _read_through(path, is_over), paths, is_over)
    return check_warm(paths)


def check_warm(
    files: Path | Sequence[Path], extents: Mapping[Path, int] | None = None
) -> PageCacheState:
    """Return the page cache state of files that have just been read."""
    share = resident_share(files, extents)
    if share is None:
        reason = "read once before; cached share unknown"
        return PageCacheState("warm", False, reason, None)
    reason = f"read once before; {_percent(share)} in memory"
    return PageCacheState("warm", False, reason, share)


def _percent(share: float, digits: int = 1) -> str:
    """Return a share in which a little is not nothing: never ``0.0%`` of a page."""
    least = 10**-digits
    if 0 < share * 100 < least:
        return f"less than {least:g}%"
    return f"{share * 100:.{digits}f}%"


def _as_files(files: Path | Sequence[Path]) -> list[Path]:
    return [files] if isinstance(files, Path) else list(files)


def one_of_each_device(files: Sequence[Path]) -> list[Path]:
    """Return one file of each file system that the files are on."""
    devices = _map_files(lambda path: path.stat().st_dev, files)
    return list(dict(zip(reversed(devices), reversed(files), strict=True)).values())


def _refuse_memory(files: Sequence[Path]) -> dict[Path, dict[str, Any]]:
    """Return the storage of each file, if that is not memory itself."""
    storages = {path: describe_storage(path) for path in files}
    for path, storage in storages.items():
        if storage_kind(storage["file_system"]) == "memory":
            message = (
                f"{path} is on {storage['file_system']}, which is in memory and never "
                "cold. Use a folder on a disk or a file server, or use cache='warm'."
            )
            raise PageCacheError(message)
    return storages


def _map_files(
    do: Callable[[Path], Any],
    files: Sequence[Path],
    is_over: threading.Event | None = None,
) -> list[Any]:
    """Do something with every file, several together; return the results in order."""
    # An interrupt sets ``is_over``, for those that are being read.
    if len(files) == 1:
        return [do(files[0])]
    # A few large files are divided among all threads, too.
    count = min(_FILES_PER_TASK, -(-len(files) // _THREADS)) or 1
    tasks = [files[start : start + count] for start in range(0, len(files), count)]
    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            done = list(pool.map(lambda task: [do(path) for path in task], tasks))
        except BaseException:
            if is_over is not None:
                is_over.set()
            pool.shutdown(cancel_futures=True)
            raise
    return [result for task in done for result in task]


def _drop(path: Path) -> None:
    descriptor = descriptor_of(path)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        counted = _count_resident(path)
        if counted is None or counted[0]:
            # Pages that are not on the disk yet stay. To write them costs a flush of
            # the disk, which a million unchanged files need not wait for.
            try:
                os.fsync(descriptor)
            except OSError as error:
                # What cannot be written, such as squashfs, has nothing to write back.
                if error.errno not in (errno.EINVAL, errno.EROFS, errno.ENOSYS):
                    raise
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def _read_through(path: Path, is_over: threading.Event) -> None:
    buffer = bytearray(_READ_BYTES)
    with open_regular(path) as file:
        while not is_over.is_set() and file.readinto(buffer):
            pass


def _count_resident(path: Path, end: int | None = None) -> tuple[int, int] | None:
    """Return how many pages of a file are in memory, and how many there are."""
    descriptor = descriptor_of(path)
    try:
        if not _is_owner(descriptor) and not os.access(
            path, os.W_OK, effective_ids=True
        ):
            return None
        size = os.fstat(descriptor).st_size
        size = size if end is None else min(size, end)
        resident = sum(
            _resident_pages(descriptor, start, min(_WINDOW_BYTES, size - start))
            for start in range(0, size, _WINDOW_BYTES)
        )
    except OSError as error:
        if error.errno == errno.ENODEV:  # a file system without mmap, such as some FUSE
            return None
        raise
    finally:
        os.close(descriptor)
    return resident, -(-size // _PAGE_BYTES)


def _is_owner(descriptor: int) -> bool:
    """Tell whether the kernel takes this process for a file's owner."""
    # Root may not be: in a container, or without its capabilities. The kernel asks the
    # same for O_NOATIME as for ``mincore``.
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_NOATIME)
    except PermissionError:
        return False
    return True


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
