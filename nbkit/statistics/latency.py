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
    """Timing of consecutive forward passes of one batch size in one run."""

    batch_size: int
    passes: int
    """Number of individually timed passes."""
    p50_seconds: float
    p95_seconds: float | None
    """None with fewer than 20 passes."""
    p99_seconds: float | None
    """None with fewer than 100 passes."""
    images_per_second: float
    throughput: str
    """How the rate was measured: ``passes in a row`` (no synchronization between
    passes) or ``batch / mean latency``."""
    peak_memory_bytes: int | None
    """Peak GPU allocation at this batch size; on CPUs, peak RSS so far."""
    began: float
    """Unix time at which the passes of the rate began."""
    ended: float
    images: int
    """Images in the passes of the rate."""


def latency_timings(rows: Iterable[Mapping[str, Any]]) -> dict[int, LatencyTiming]:
    """Return a run's latencies by batch size.

    The passes of one batch size may be split over several rows.
    """
    parts: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        parts.setdefault(row["batch_size"], []).append(row)
    return {size: _timing(size, of_size) for size, of_size in parts.items()}


def percentile(values: Sequence[float], percent: float) -> float | None:
    """Return a percentile, by linear interpolation (numpy's default).

    None if too few values are above it: 50 values do not determine the 99th
    percentile.
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
