"""`LiveDevices`: the GPUs of a run, from the samples taken during it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from nbkit.live.series import Series
from nbkit.reading import LINE_BYTES, open_regular, parse_object, regular_files

WHOLE_BYTES = 4 << 20
"""So much of a file's end is read when it is first seen: about a quarter of an hour of
eight GPUs. A file of a day has hundreds of MB."""
EARLIER_SAMPLES = 500
"""Of what is before, so many samples are read, evenly spread."""
LEAST_BYTES = 1 << 16
LEAST_SAMPLES = 4
"""Many hosts share both, but each has this much read of its end, and of what is
before."""
_BLOCK_BYTES = 1 << 20
_GIB = 1 << 30
_SILENT_SECONDS = 10.0
"""Lines do not wait for a host that tells nothing for longer than others do."""

_SHOWN = (
    *("name", "uuid", "gpu_utilization_percent", "power_watts", "power_limit_watts"),
    *("memory_used_bytes", "memory_total_bytes"),
)

DeviceRow = dict[str, Any]
Value = Callable[[DeviceRow], float | None]

_CHARTS: dict[str, Value] = {
    "device:gpu_utilization_percent": lambda row: row["gpu_utilization_percent"],
    "device:memory_used_gibibytes": lambda row: (
        (used := row["memory_used_bytes"]) and used / _GIB
    ),
    "device:power_watts": lambda row: row["power_watts"],
}
"""A run may log values by the names after the prefix."""


class LiveDevices:
    """The newest sample of every GPU of a run, and lines over time.

    A line has the mean over the run's GPUs, and the lowest and highest of them.

    Parameters
    ----------
    folder
        Where each host's sampler writes a file.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}
        self._newest: dict[str, list[DeviceRow]] = {}
        self._heard_at: dict[str, float] = {}
        self._waiting: dict[float, list[DeviceRow]] = {}
        self._drawn_until = -math.inf
        self.series: dict[str, Series] = {}
        """Lines by name, over Unix time in seconds; none without GPUs."""

    def rows(self) -> list[DeviceRow]:
        """Return the newest values of each GPU, by host."""
        return [row for host in sorted(self._newest) for row in self._newest[host]]

    def read(self, uuids: Sequence[str], *, is_over: bool = False) -> None:
        """Read what is new.

        Parameters
        ----------
        uuids
            GPUs and MIG instances of the run; all that the files have if empty.
        is_over
            Nothing more will come: the lines wait for no host any longer.

        Raises
        ------
        OSError
            If a file cannot be read.
        """
        own = frozenset(uuids)
        paths = regular_files(self._folder, ".jsonl")
        for path in paths:
            for sample in self._new_samples(path, len(paths)):
                rows = list(own_rows(sample, own, path.stem))
                if rows:
                    t = self._heard_at[path.stem] = sample["t"]
                    self._newest[path.stem] = rows
                    # One host's samples are separate points; of several hosts,
                    # those of a second are one.
                    moment = t if len(paths) == 1 else float(math.floor(t))
                    self._waiting.setdefault(moment, []).extend(rows)
        self._draw(math.inf if is_over or len(paths) < 2 else self._complete_until())

    def _complete_until(self) -> float:
        """Return the time up to which all hosts that still write have written."""
        newest = max(self._heard_at.values(), default=0.0)
        times = (t for t in self._heard_at.values() if t > newest - _SILENT_SECONDS)
        return float(math.floor(min(times, default=0.0)))

    def _draw(self, end: float) -> None:
        """Add what waits to the lines, of moments before `end`."""
        for moment in sorted(t for t in self._waiting if t < end):
            rows = self._waiting.pop(moment)
            # A line never runs back: who tells this late is in the table only.
            if moment > self._drawn_until:
                self._drawn_until = moment
                self._add(moment, rows)

    def _add(self, t: float, rows: list[DeviceRow]) -> None:
        for name, value in _CHARTS.items():
            values = [number for row in rows if (number := value(row)) is not None]
            if values:
                series = self.series.setdefault(name, Series())
                mean = sum(values) / len(values)
                series.add_band(t, min(values), max(values), mean)

    def _new_samples(self, path: Path, num_files: int) -> Iterator[DeviceRow]:
        with open_regular(path) as file:
            offset = self._offsets.get(path)
            if offset is None:
                size = file.seek(0, os.SEEK_END)
                whole_bytes = max(LEAST_BYTES, WHOLE_BYTES // num_files)
                offset = max(0, size - whole_bytes)
                earlier = max(LEAST_SAMPLES, EARLIER_SAMPLES // num_files)
                yield from _spread_samples(file, offset, earlier)
                file.seek(offset)
                if offset:
                    offset += len(file.readline(LINE_BYTES))  # it may be half a line
            file.seek(offset)
            while True:
                data = file.read(_BLOCK_BYTES)
                end = data.rfind(b"\n") + 1
                offset += end
                self._offsets[path] = offset
                for line in data[:end].splitlines():
                    yield from sample_of(line)
                if len(data) < _BLOCK_BYTES or not end:
                    return
                file.seek(offset)


def _spread_samples(file: BinaryIO, end: int, most: int) -> Iterator[DeviceRow]:
    """Yield samples of a file's beginning, evenly spread over its bytes."""
    last = -1
    for number in range(most if end else 0):
        file.seek(number * end // most)
        if number:
            file.readline(LINE_BYTES)
        begin = file.tell()
        line = file.readline(LINE_BYTES)
        if begin > last and begin < end and line.endswith(b"\n"):
            last = begin
            yield from sample_of(line)


def sample_of(line: bytes) -> Iterator[DeviceRow]:
    """Yield the sample in a line, if it is one."""
    try:
        row = parse_object(line)
    except json.JSONDecodeError:
        return  # the host went down while it was written
    if row.get("kind") == "sample":
        yield row


def own_rows(sample: DeviceRow, own: frozenset[str], host: str) -> Iterator[DeviceRow]:
    """Yield the values of a run's GPUs and MIG instances in a host's sample."""
    for gpu in sample.get("gpus") or ():
        parts = [gpu] if not own or gpu.get("uuid") in own else []
        # Utilization and power are those of the whole board, others' work too: an
        # instance has none.
        instances = gpu.get("mig_instances") or ()
        for part in (*parts, *(mig for mig in instances if mig["uuid"] in own)):
            yield {
                "host": host,
                "index": gpu["index"],
                "memory_unified": part.get("memory_unified", False),
                **{name: part.get(name) for name in _SHOWN},
            }
