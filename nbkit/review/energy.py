"""Energy of a run's GPUs between two moments, from their counters."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

from nbkit.store.stored_runs import StoredRun
from nbkit.telemetry.system import system_rows

_FEWEST_SAMPLES = 5
"""Inside the window. A sampler looks once a second, and between two looks the counter
is taken to grow evenly: with five, both ends together are off by a few percent."""
_Counters = dict[str, list[tuple[float, float]]]
"""(Unix time, joules) of every GPU, by its UUID."""
_Span = tuple[float, float]


def joules_between(
    run: StoredRun,
    begin: float,
    end: float,
    without: Sequence[_Span] = (),
) -> float | None:
    """Return the energy of all GPUs of the run between two Unix times, in joules.

    CPUs, memory and fans have no counter and are excluded. None if another attempt
    began in between.

    References
    ----------
    nvmlDeviceGetTotalEnergyConsumption,
    https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    """
    record = run.record
    strangers = (record.get("system") or {}).get("other_gpu_processes")
    if strangers or record.get("launch", {}).get("replayed"):
        return None
    files = run.paths.system_files()
    if len(files) != run.config.nnodes:
        return None
    used = [_joules_of_host(path, begin, end, without) for path in files]
    known = [joules for joules in used if joules is not None]
    return sum(known) if len(known) == len(used) else None


def _joules_of_host(
    path: Path, begin: float, end: float, without: Sequence[_Span]
) -> float | None:
    """Return what the GPUs of one sampler's file used between two Unix times."""
    counters = _counters(path, begin)
    times = sorted({t for points in counters.values() for t, _ in points})
    inside, *left_out = (
        bisect_right(times, last) - bisect_left(times, first)
        for first, last in ((begin, end), *without)
    )
    if inside - sum(left_out) < _FEWEST_SAMPLES:
        return None
    total = 0.0
    for points in counters.values():
        used = [_growth(points, *span) for span in ((begin, end), *without)]
        known = [joules for joules in used if joules is not None]
        if len(known) < len(used):
            return None
        total += known[0] - sum(known[1:])
    return total


def _counters(path: Path, begin: float) -> _Counters:
    """Return the counters of the attempt that goes on at a time.

    A GPU without one has no points. That of a partitioned GPU is of all its instances.
    """
    counters: _Counters = {}
    newest = -math.inf
    for row in system_rows(path):
        if row["kind"] == "header":
            if newest >= begin:
                break
            counters = {}
            continue
        newest = row["t"]
        for gpu in row["gpus"]:
            points = counters.setdefault(gpu.get("uuid") or str(gpu.get("index")), [])
            joules, parts = gpu.get("energy_joules"), gpu.get("mig_instances")
            if joules is not None and not parts:
                points.append((row["t"], joules))
    return counters


def system_samples(path: Path) -> Iterator[dict[str, Any]]:
    """Yield every sample of one sampler's file."""
    return (row for row in system_rows(path) if row["kind"] != "header")


def _growth(
    points: list[tuple[float, float]], begin: float, end: float
) -> float | None:
    """Return by how much a counter has grown; None if that is unknown."""
    first, last = _at(points, begin), _at(points, end)
    if first is None or last is None:
        return None
    # The counter starts again when the driver is reloaded.
    return last - first if last >= first else None


def _at(points: list[tuple[float, float]], t: float) -> float | None:
    """Return a counter at a time between two of its points; None outside of them."""
    place = max(1, bisect_left(points, t, key=itemgetter(0)))
    for (t_before, before), (t_after, after) in pairwise(points[place - 1 : place + 1]):
        if t_before <= t <= t_after:
            if t_after == t_before:
                return before
            return before + (after - before) * (t - t_before) / (t_after - t_before)
    return None
