"""Energy of a run's GPUs between two moments, from their counters."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from nbkit.reading import lines_of, open_regular, parse_object
from nbkit.store.runs import StoredRun

__all__ = ["joules_between", "system_samples"]

_FEWEST_SAMPLES = 5
"""Inside the window. A sampler looks once a second, and between two looks the counter
is taken to grow evenly: with five, both ends together are off by a few percent."""


def joules_between(run: StoredRun, begin: float, end: float) -> float | None:
    """Return what all the run's GPUs used between two Unix times, in joules.

    The GPUs only: processors, memory and fans are on no counter.

    Parameters
    ----------
    run
        Its samples cover the time between.
    begin, end
        Unix times.

    Returns
    -------
    float or None
        None without GPUs, without energy counters (before Volta), with a replayed
        trace, where the counter is not this run's alone (other processes, instances of
        a partitioned GPU), with samples of fewer hosts than the run had, and for a
        window of less than about five seconds.

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
    used = [_joules_of_host(path, begin, end) for path in files]
    known = [joules for joules in used if joules is not None]
    return sum(known) if len(known) == len(used) else None


def _joules_of_host(path: Path, begin: float, end: float) -> float | None:
    """Return what the GPUs of one sampler's file used between two Unix times."""
    total = 0.0
    counters = _counters(path)
    for points in counters.values():
        inside = [point for point in points if begin <= point[0] <= end]
        first, last = _at(points, begin), _at(points, end)
        if len(inside) < _FEWEST_SAMPLES or first is None or last is None:
            return None
        if last < first:  # the counter starts again when the driver is reloaded
            return None
        total += last - first
    return total if counters else None


def _counters(path: Path) -> dict[str, list[tuple[float, float]]]:
    """Return (Unix time, joules) of every GPU; of one without a counter, none.

    The counter of a partitioned GPU is that of all its instances.
    """
    found: dict[str, list[tuple[float, float]]] = {}
    for row in system_samples(path):
        for gpu in row["gpus"]:
            points = found.setdefault(gpu.get("uuid") or str(gpu.get("index")), [])
            joules, parts = gpu.get("energy_joules"), gpu.get("mig_instances")
            if joules is not None and not parts:
                points.append((row["t"], joules))
    return found


def system_samples(path: Path) -> Iterator[dict[str, Any]]:
    """Yield every sample of one sampler's file."""
    with open_regular(path) as file:
        for line in lines_of(file, path):
            if line.endswith(b"\n"):
                row = parse_object(line)
                if row["kind"] != "header":
                    yield row


def _at(points: list[tuple[float, float]], t: float) -> float | None:
    """Return a counter at a time between two of its points; None outside of them."""
    for (t_before, before), (t_after, after) in pairwise(points):
        if t_before <= t <= t_after:
            if t_after == t_before:
                return before
            return before + (after - before) * (t - t_before) / (t_after - t_before)
    return None
