"""What is read over time: throughput, operations and their size, a few times a second.

Where a block device of this machine holds the files, its own counters tell: that is
what arrives at the storage, after readahead and the page cache. Other processes' reads
of the same device count too. Elsewhere (a file server, an overlay) only what the
reading processes asked for is known.

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
from types import TracebackType
from typing import Self, TypeAlias

from nbkit.readspeed.places import block_device

_SECTOR_BYTES = 512
"""The unit of the counters, whatever the device has."""


_Look: TypeAlias = tuple[float, int, int, tuple[int, ...]]
"""When, operations so far, bytes, and of which processes; of none is the device."""
_LOOK_BYTES = 4096


@dataclass(frozen=True)
class Interval:
    """What was read between two looks at the counters."""

    seconds: float
    """From the beginning of the first interval to the end of this one."""
    bytes_per_second: float
    operations_per_second: float
    operation_bytes: float | None
    """Mean size; None without operations."""


class Meter:
    """Looks at counters while something is read; a context.

    Parameters
    ----------
    path
        What is read.
    period_seconds
        Between two looks.
    """

    def __init__(self, path: Path, period_seconds: float = 0.1) -> None:
        self._device = block_device(path)
        self._period_seconds = period_seconds
        self._pids: tuple[int, ...] = (os.getpid(),)
        self._looks: list[_Look] = []
        self._own = 0, 0
        """Operations and bytes of this process with which its counters were read."""
        self._fetched_before: int | None = None
        self._fetched_bytes: list[int] = []
        """What the reading processes got from devices; empty if they do not tell."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def source(self) -> str:
        """Whose counters they are: ``device nvme0n1p1`` or ``reading process``."""
        if self._device is None:
            return "reading process"
        return f"device {self._device.resolve().name}"

    @property
    def intervals(self) -> tuple[Interval, ...]:
        """What was read, from one poll to the next; empty without a counter.

        Without what is before the first operation and after the last: a separate
        engine needs a moment to start.
        """
        pairs = [
            (before, now)
            for before, now in itertools.pairwise(self._looks)
            # Until it is known which processes read, this one was looked at.
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
        """Bytes that the device delivered; None where only a process is watched.

        At most what the reading processes got from a device, if they tell: others may
        read from it as well.
        """
        if self._device is None or len(self._looks) < 2:
            return None
        return min([self._looks[-1][2] - self._looks[0][2], *self._fetched_bytes])

    def watch(self, *pids: int) -> None:
        """Say which processes read, if it is not this one; their reads are added."""
        self._pids = pids
        self._fetched_before = _fetched_bytes(pids)
        self._look()

    def __enter__(self) -> Self:
        self._fetched_before = _fetched_bytes(self._pids)
        self._look()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()
        self._look()
        fetched_bytes = _fetched_bytes(self._pids)
        if fetched_bytes is not None and self._fetched_before is not None:
            self._fetched_bytes = [fetched_bytes - self._fetched_before]

    def _watch(self) -> None:
        while not self._is_over.wait(self._period_seconds):
            self._look()

    def _look(self) -> None:
        counted = self._count()
        if counted is not None:
            self._looks.append((time.perf_counter(), *counted))

    def _count(self) -> tuple[int, int, tuple[int, ...]] | None:
        """Return operations and bytes of the device, or of processes, and these."""
        pids = self._pids
        try:
            if self._device is not None:
                fields = (self._device / "stat").read_text().split()
                return int(fields[0]), int(fields[2]) * _SECTOR_BYTES, ()
            counted = [self._count_process(pid) for pid in pids]
        except OSError:
            return None  # a process has ended, or is not ours to look at
        return sum(n for n, _ in counted), sum(size for _, size in counted), pids

    def _count_process(self, pid: int) -> tuple[int, int]:
        # One read, which the counters contain from the next time on.
        with Path(f"/proc/{pid}/io").open("rb", buffering=0) as file:
            text = file.read(_LOOK_BYTES)
        named = dict(line.split(": ") for line in text.decode().splitlines())
        operations, size = int(named["syscr"]), int(named["rchar"])
        if pid == os.getpid():
            own_operations, own_size = self._own
            self._own = own_operations + 1, own_size + len(text)
            operations, size = operations - own_operations, size - own_size
        return operations, size


def _fetched_bytes(pids: Sequence[int]) -> int | None:
    """Return what processes have got from devices; None if one has ended."""
    total = 0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/io").read_text()
        except OSError:
            return None
        named = dict(line.split(": ") for line in text.splitlines())
        total += int(named["read_bytes"])
    return total


def _interval(before: _Look, now: _Look, began: float) -> Interval:
    seconds = now[0] - before[0]
    operations, size = now[1] - before[1], now[2] - before[2]
    return Interval(
        now[0] - began,
        size / seconds,
        operations / seconds,
        size / operations if operations else None,
    )
