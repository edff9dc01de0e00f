"""Bytes and operations over time, sampled a few times per second.

Where block devices of this machine hold the files, their own counters tell: that is
what arrives at the storage, after readahead and the page cache. Other processes' reads
of the same devices count too. Elsewhere (a file server, an overlay) only what the
reading process asked for is known.

References
----------
https://docs.kernel.org/block/stat.html
https://docs.kernel.org/filesystems/proc.html (3.3, /proc/PID/io)
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeAlias

_SECTOR_BYTES = 512
"""The unit of the counters, whatever the device has."""


_Look: TypeAlias = tuple[float, int, int, int | None]
"""When, operations so far, bytes, and of which process; None for devices."""


@dataclass(frozen=True)
class Interval:
    """Reads between two polls of the counters."""

    seconds: float
    """End of this interval, counted from the start of the first one."""
    bytes_per_second: float
    operations_per_second: float
    operation_bytes: float | None
    """Mean size of an operation; None without operations."""


class Meter:
    """Context manager that polls the counters while files are read."""

    def __init__(self, devices: Sequence[Path], period_seconds: float = 0.1) -> None:
        self._devices = devices
        self._period_seconds = period_seconds
        self._pid = os.getpid()
        self._looks: list[_Look] = []
        self._fetched_before: int | None = None
        self._fetched_bytes: list[int] = []
        """What the reading process got from devices; empty if it does not tell."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def source(self) -> str:
        """Source of the counters: ``device nvme0n1p1`` or ``reading process``."""
        names = [device.resolve().name for device in self._devices]
        if not names:
            return "reading process"
        return f"device{'s' * (len(names) > 1)} {', '.join(names)}"

    @property
    def intervals(self) -> tuple[Interval, ...]:
        """Reads from one poll to the next; empty without a counter."""
        # Without what is before the first operation and after the last: a separate
        # engine needs a moment to start.
        pairs = [
            (before, now)
            for before, now in itertools.pairwise(self._looks)
            # Until it is known which process reads, this one was looked at.
            if now[0] > before[0]
            and now[1] >= before[1]
            and before[3] == now[3] == self._looks[-1][3]
        ]
        busy = [n for n, (before, now) in enumerate(pairs) if now[1] > before[1]]
        if not busy:
            return ()
        pairs = pairs[busy[0] : busy[-1] + 1]
        return tuple(_interval(before, now, pairs[0][0][0]) for before, now in pairs)

    @property
    def bytes_read(self) -> int | None:
        """Bytes that the devices delivered; None if only a process is polled."""
        # At most what the reading process got from a device, if it tells: others may
        # read as well.
        if not self._devices or len(self._looks) < 2:
            return None
        return min([self._looks[-1][2] - self._looks[0][2], *self._fetched_bytes])

    def watch(self, pid: int) -> None:
        """Set the process that reads, if it is not this one."""
        self._pid = pid
        self._fetched_before = _fetched_bytes(pid)
        self._look()

    def __enter__(self) -> Self:
        self._fetched_before = _fetched_bytes(self._pid)
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._look()
        fetched_bytes = _fetched_bytes(self._pid)
        if fetched_bytes is not None and self._fetched_before is not None:
            self._fetched_bytes = [fetched_bytes - self._fetched_before]

    def _watch(self) -> None:
        while not self._is_over.wait(self._period_seconds):
            self._look()

    def _look(self) -> None:
        counted = self._count()
        if counted is not None:
            self._looks.append((time.perf_counter(), *counted))

    def _count(self) -> tuple[int, int, int | None] | None:
        """Return operations and bytes of the devices, or of a process, and this."""
        pid = self._pid
        try:
            if not self._devices:
                io = _process_io(pid)
                return io["syscr"], io["rchar"], pid
            counted = [_device_reads(device) for device in self._devices]
        except OSError:
            return None  # a process has ended, or is not ours to look at
        return sum(n for n, _ in counted), sum(size for _, size in counted), None


def _process_io(pid: int) -> dict[str, int]:
    """Return what a process has read and written, by the kernel's names."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return {name: int(count) for name, count in (line.split(": ") for line in lines)}


def _device_reads(device: Path) -> tuple[int, int]:
    """Return the operations and bytes that a device has delivered."""
    fields = (device / "stat").read_text().split()
    operations, size = int(fields[0]), int(fields[2]) * _SECTOR_BYTES
    below = [] if size else list((device / "slaves").glob("*"))
    # Some drivers of RAID and multipath leave counting to the disks below.
    for operations_below, size_below in map(_device_reads, below):
        operations, size = operations + operations_below, size + size_below
    return operations, size


def _fetched_bytes(pid: int) -> int | None:
    """Return what a process has got from devices; None if it has ended."""
    try:
        return _process_io(pid)["read_bytes"]
    except OSError:
        return None


def _interval(before: _Look, now: _Look, began: float) -> Interval:
    seconds = now[0] - before[0]
    operations, size = now[1] - before[1], now[2] - before[2]
    return Interval(
        now[0] - began,
        size / seconds,
        operations / seconds,
        size / operations if operations else None,
    )
