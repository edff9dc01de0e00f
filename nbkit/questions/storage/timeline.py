"""Storage throughput over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from nbkit.launch.run import Run
from nbkit.questions.storage.chart import over_time_chart
from nbkit.questions.storage.reads import Reads
from nbkit.readspeed.meter import Interval
from nbkit.readspeed.places import Counter
from nbkit.reports.parts import Figure
from nbkit.review.energy import system_samples

_READS: tuple[tuple[str, str, Callable[[Interval], float | None]], ...] = (
    (
        "Reads: throughput over time",
        "Throughput (MB/s)",
        lambda interval: interval.bytes_per_second / 1e6,
    ),
    (
        "Reads: IOPS over time",
        "IOPS (reads/s)",
        lambda interval: interval.operations_per_second,
    ),
    (
        "Reads: read size over time",
        "Read size (KiB)",
        lambda interval: interval.operation_bytes and interval.operation_bytes / 1024,
    ),
)
_EPOCHS = "Epochs: bytes read over time"


def over_time(reads: Reads, epochs: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return throughput, reads and their size over time, and throughput of epochs."""
    counted = " and ".join(dict.fromkeys(speed.counted_by for _, speed in reads.speeds))
    subtitle = f"first cold repeat, counted by {counted}"
    figures = []
    for title, y_title, value in _READS:
        rows = list(_moments(reads, value))
        if rows:
            chart = over_time_chart(
                rows, title=title, y_title=y_title, subtitle=subtitle
            )
            figures.append(Figure(title, chart))
    if epochs:
        chart = over_time_chart(
            epochs,
            title=_EPOCHS,
            y_title="Throughput (MB/s)",
            subtitle="first run of each arm; sum of all disks or network cards",
        )
        figures.append(Figure(_EPOCHS, chart))
    return figures


def _moments(
    reads: Reads, value: Callable[[Interval], float | None]
) -> Iterator[dict[str, Any]]:
    for place, speed in reads.speeds:
        if speed.cache != "cold" or speed.page_cache.state == "not proven":
            continue
        series = f"{place}, {speed.pattern}"
        for interval in speed.readings[0].intervals:
            number = value(interval)
            if number is not None:
                yield {"series": series, "seconds": interval.seconds, "value": number}


def epoch_moments(
    runs: Iterable[tuple[str, Run]], counters: Mapping[str, Counter | None]
) -> list[dict[str, Any]]:
    """Return the read rate of this host (MB/s) over time during runs."""
    moments = []
    for arm, run in runs:
        points = _arrivals(run, counters[arm])
        moments += [
            {
                "series": arm,
                "seconds": now[0] - points[0][0],
                "value": (now[1] - before[1]) / (now[0] - before[0]) / 1e6,
            }
            for before, now in pairwise(points)
            if now[0] > before[0] and now[1] >= before[1]
        ]
    return moments


def arrived_bytes(run: Run, counter: Counter | None) -> int | None:
    """Return the bytes that this host read during a run; None if not counted."""
    points = _arrivals(run, counter)
    return points[-1][1] - points[0][1] if len(points) > 1 else None


def _arrivals(run: Run, counter: Counter | None) -> list[tuple[float, int]]:
    """Return Unix times, and what had arrived until then since the host started."""
    if counter is None:
        return []
    return [
        (sample["t"], sample["host"][counter])
        for path in run.paths.system_files()[:1]
        for sample in system_samples(path)
        if (sample.get("host") or {}).get(counter) is not None
    ]
