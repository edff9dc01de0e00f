"""Recent samples: 30 minutes per second, and a day per half minute.

A value is a byte: a percentage rounded to 0..100, or `GAP` where nothing is known.
Eight GPUs take 0.2 MB.
"""

from __future__ import annotations

import base64
import bisect
import math
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

GAP = 255

GPU_COLUMNS = ("utilization_percent", "memory_used_percent", "power_percent")
HOST_COLUMNS = ("cpu_percent", "memory_used_percent")

_FINE_SECONDS, _FINE_SLOTS = 1, 1800
_COARSE_SECONDS, _COARSE_SLOTS = 30, 2880
_PATIENCE = 2.5
"""A slot without a sample is filled if the next came within so many intervals."""

HistorySeries = tuple[str, str]
"""A GPU's UUID (empty for the host) and a column."""
Values = Mapping[HistorySeries, float | None]


class History:
    """Keeps samples in slots of two lengths."""

    def __init__(self, interval_seconds: float) -> None:
        fine = max(_FINE_SECONDS, math.ceil(interval_seconds))
        coarse = max(_COARSE_SECONDS, fine)
        self._fine = _Ring(fine, _FINE_SLOTS)
        self._coarse = _Ring(coarse, _COARSE_SLOTS)
        self._seen: deque[tuple[int, float]] = deque(maxlen=_FINE_SLOTS)

    @property
    def newest_seq(self) -> int:
        """The number of the newest sample; 0 before the first."""
        return self._seen[-1][0] if self._seen else 0

    def add(
        self,
        seq: int,
        t: float,
        gpus: Mapping[str, Sequence[float | None]],
        host: Sequence[float | None],
    ) -> None:
        """Keep a sample."""
        values = _flat(gpus, host)
        self._fine.add(t, values)
        self._coarse.add(t, values)
        self._seen.append((seq, t))

    def fill(self, rows: Iterable[Sequence[Any]], now: float) -> None:
        """Put what others have sampled into gaps; what is known stays."""
        past = [(t, _flat(gpus, host)) for t, gpus, host in rows]
        self._fine.fill(past, now)
        self._coarse.fill(past, now)

    def time_of(self, seq: int) -> float | None:
        """Return when a message was sent; None if it is too old or unknown."""
        position = bisect.bisect_right([number for number, _ in self._seen], seq)
        return self._seen[position - 1][1] if position else None

    def parts(self, since: float | None = None) -> list[dict[str, Any]]:
        """Return both lengths as base64 columns."""
        return [self._fine.part(since), self._coarse.part(since)]


class _Ring:
    """Slots of one length; the place of a slot is its number modulo their count."""

    def __init__(self, interval_seconds: int, count: int) -> None:
        self.interval_seconds = interval_seconds
        self.columns: dict[HistorySeries, array[int]] = {}
        self._count = count
        self._newest: int | None = None
        self._sums: dict[HistorySeries, list[float]] = {}
        """Of the newest slot: sum and number of values."""
        self._last: float | None = None

    def add(self, t: float, values: Values) -> None:
        slot = int(t // self.interval_seconds)
        if self._newest is not None and slot < self._newest:
            self._set_back(slot)
        before, last = self._newest, self._last
        if slot != before:
            self._advance(slot)
        self._last = t
        means: dict[HistorySeries, int] = {}
        for series, value in values.items():
            if value is not None:
                total = self._sums.setdefault(series, [0.0, 0])
                total[0] += value
                total[1] += 1
                means[series] = _byte(total[0] / total[1])
        self._write(slot, means)
        patience = _PATIENCE * self.interval_seconds
        if before is not None and last is not None and t - last <= patience:
            for missed in range(before + 1, slot):
                self._write(missed, means)

    def fill(self, past: Sequence[tuple[float, Values]], now: float) -> None:
        present = int(now // self.interval_seconds)
        if self._newest is None or present > self._newest:
            self._advance(present)
        sums: dict[tuple[int, HistorySeries], list[float]] = {}
        last = -math.inf
        for t, values in past:
            slot = int(t // self.interval_seconds)
            near = 0 <= t - last <= _PATIENCE * self.interval_seconds
            first = int(last // self.interval_seconds) + 1 if near else slot
            last = t
            for series, value in values.items():
                if value is not None:
                    for place in range(min(first, slot), slot + 1):
                        total = sums.setdefault((place, series), [0.0, 0])
                        total[0] += value
                        total[1] += 1
        for (slot, series), (total, number) in sums.items():
            self._write(slot, {series: _byte(total / number)}, only_gaps=True)

    def part(self, since: float | None) -> dict[str, Any]:
        newest = self._newest
        if newest is None:
            return self._encoded(0, {})
        first = newest - self._count + 1
        if since is not None:
            first = min(max(first, int(since // self.interval_seconds)), newest + 1)
        rows = {
            series: self._slots(column, first, newest)
            for series, column in self.columns.items()
        }
        leading = min(
            (len(row) - len(row.lstrip(b"\xff")) for row in rows.values()),
            default=newest + 1 - first,
        )
        trimmed = {series: row[leading:] for series, row in rows.items()}
        return self._encoded(first + leading, trimmed)

    def _encoded(
        self, first: int, rows: Mapping[HistorySeries, bytes]
    ) -> dict[str, Any]:
        gpus: dict[str, dict[str, str]] = {}
        host: dict[str, str] = {}
        count = 0
        for (uuid, column), row in rows.items():
            count = len(row)
            columns = gpus.setdefault(uuid, {}) if uuid else host
            columns[column] = base64.b64encode(row).decode()
        return {
            "interval_seconds": self.interval_seconds,
            "t0": first * self.interval_seconds,
            "count": count,
            "gpus": gpus,
            "host": host,
        }

    def _slots(self, column: array[int], first: int, last: int) -> bytes:
        """Return the slots from ``first`` to ``last``; earlier than kept is a gap."""
        kept = max(first, last - self._count + 1)
        begin, end = kept % self._count, last % self._count + 1
        count = last + 1 - kept
        if count <= 0:
            return b""
        turned = column[begin:end] if begin < end else column[begin:] + column[:end]
        return b"\xff" * (kept - first) + turned.tobytes()

    def _advance(self, slot: int) -> None:
        """Make a slot the newest; slots in between are gaps until they are known."""
        if self._newest is not None:
            first = max(self._newest + 1, slot - self._count + 1)
            for column in self.columns.values():
                for gap in range(first, slot + 1):
                    column[gap % self._count] = GAP
        self._newest, self._sums = slot, {}

    def _set_back(self, slot: int) -> None:
        """Drop what is ahead of a clock that was set back."""
        newest = self._newest or slot
        for column in self.columns.values():
            for ahead in range(max(slot, newest - self._count) + 1, newest + 1):
                column[ahead % self._count] = GAP
        self._newest, self._last = slot, None
        self._sums = {}

    def _write(
        self, slot: int, values: Mapping[HistorySeries, int], *, only_gaps: bool = False
    ) -> None:
        newest = self._newest
        if newest is None or not newest - self._count < slot <= newest:
            return
        place = slot % self._count
        for series, value in values.items():
            column = self.columns.get(series)
            if column is None:
                column = self.columns[series] = array("B", bytes([GAP]) * self._count)
            if not only_gaps or column[place] == GAP:
                column[place] = value


def _flat(
    gpus: Mapping[str, Sequence[float | None]], host: Sequence[float | None]
) -> dict[HistorySeries, float | None]:
    values: dict[HistorySeries, float | None] = {
        ("", column): value for column, value in zip(HOST_COLUMNS, host, strict=True)
    }
    for uuid, row in gpus.items():
        for column, value in zip(GPU_COLUMNS, row, strict=True):
            values[uuid, column] = value
    return values


def _byte(percent: float) -> int:
    return min(100, max(0, round(percent)))
