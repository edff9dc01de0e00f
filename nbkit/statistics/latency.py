"""Latencies of inference: percentiles of a run's passes, intervals over runs.

Passes of one process follow each other on the same caches and clocks: they are not
independent, and a percentile of theirs gets no interval. Each run gives one number for
each percentile, and intervals are computed over runs (`summarise`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbkit.statistics.summary import require_finite

PERCENTILES = (50, 95, 99)
"""Which are shown: the usual pass, and the tail that users wait for."""


@dataclass(frozen=True)
class LatencyTiming:
    """Forward passes of one batch size, one after the other in one run."""

    batch_size: int
    passes: int
    """Timed one by one."""
    p50_seconds: float
    p95_seconds: float | None
    """None with fewer than 20 passes, of which 5 % are not even one."""
    p99_seconds: float | None
    """None with fewer than 100 passes."""
    images_per_second: float
    throughput: str
    """How the rate was measured: ``passes in a row``, for which no process waits one by
    one, or ``batch / mean latency``."""
    peak_memory_bytes: int | None
    """Allocated on the GPU for this batch size, or resident so far on a CPU."""
    began: float
    """Unix time at which the passes of the rate began."""
    ended: float
    images: int
    """Of the passes of the rate."""


def latency_timings(rows: Iterable[Mapping[str, Any]]) -> dict[int, LatencyTiming]:
    """Return what a run's lines of latencies say, by batch size.

    A batch size of many passes has several rows, each with a part of them.
    """
    parts: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        parts.setdefault(row["batch_size"], []).append(row)
    return {size: _timing(size, of_size) for size, of_size in parts.items()}


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return a percentile, by linear interpolation (numpy's default).

    None where the values are too few to have one beyond it: of 50 values no one
    knows the 99th percentile.
    """
    require_finite("values", values)
    if percent > 50 and len(values) * (100 - percent) < 100:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _timing(batch_size: int, rows: Sequence[Mapping[str, Any]]) -> LatencyTiming:
    seconds = [latency for row in rows for latency in row["times_seconds"]]
    last = rows[-1]
    p50, p95, p99 = (percentile(seconds, percent) for percent in PERCENTILES)
    assert p50 is not None  # every set of values has a median
    images = batch_size * last["throughput_batches"]
    memory = last.get("peak_memory_allocated_bytes")
    if memory is None:
        memory = last.get("peak_rss_bytes")
    return LatencyTiming(
        batch_size=batch_size,
        passes=len(seconds),
        p50_seconds=p50,
        p95_seconds=p95,
        p99_seconds=p99,
        images_per_second=images / last["throughput_seconds"],
        throughput=last["throughput"],
        peak_memory_bytes=memory,
        began=last["began"],
        ended=last["ended"],
        images=images,
    )
