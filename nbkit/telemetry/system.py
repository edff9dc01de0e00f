"""What a run's samples add up to: energy, slowed seconds, other processes on its GPUs."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from nbkit.telemetry.sample import GpuSample, Sample

__all__ = ["read_samples", "summarise_system"]


def read_samples(path: Path) -> list[Sample]:
    """Return the samples in a file of the sampler, oldest first; empty without one."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return []
    rows = (json.loads(line) for line in lines)
    return [
        Sample.from_dict({key: value for key, value in row.items() if key != "kind"})
        for row in rows
        if row["kind"] == "sample"
    ]


def summarise_system(path: Path, run_pids: Collection[int]) -> dict[str, Any] | None:
    """Return raw sums over a run's samples; None without samples.

    Parameters
    ----------
    path
        The sampler's file.
    run_pids
        Pids of the run's ranks; any other process on its GPUs is a stranger.

    Returns
    -------
    dict
        ``samples``, ``seconds``, ``gpus`` (by UUID: ``energy_joules`` between first and
        last sample, ``slowed_seconds`` in which power or heat held the clocks down,
        ``gpu_utilization_percent_sum`` over ``gpu_utilization_samples``,
        ``memory_used_bytes_max``), ``other_gpu_processes`` (distinct strangers; None
        where processes cannot be seen).
    """
    samples = read_samples(path)
    if not samples:
        return None
    readings: dict[str, list[tuple[float, GpuSample]]] = {}
    for sample in samples:
        for gpu in sample.gpus:
            readings.setdefault(gpu.uuid or str(gpu.index), []).append((sample.t, gpu))
    strangers = {
        process.pid
        for series in readings.values()
        for _, gpu in series
        for process in gpu.processes or ()
        if process.pid not in run_pids
    }
    seen = any(g.processes is not None for s in readings.values() for _, g in s)
    return {
        "samples": len(samples),
        "seconds": samples[-1].t - samples[0].t,
        "gpus": {uuid: _sums(series) for uuid, series in readings.items()},
        "other_gpu_processes": len(strangers) if seen else None,
    }


def _sums(series: list[tuple[float, GpuSample]]) -> dict[str, Any]:
    energies = [gpu.energy_joules for _, gpu in series if gpu.energy_joules is not None]
    busy = [
        gpu.gpu_utilization_percent
        for _, gpu in series
        if gpu.gpu_utilization_percent is not None
    ]
    used = [g.memory_used_bytes for _, g in series if g.memory_used_bytes is not None]
    slowed = [gpu.is_slowed for _, gpu in series]
    steps = zip(series, series[1:], strict=False)
    return {
        "energy_joules": energies[-1] - energies[0] if len(energies) > 1 else None,
        "slowed_seconds": None
        if None in slowed
        else sum(
            after - before for (before, gpu), (after, _) in steps if gpu.is_slowed
        ),
        "gpu_utilization_percent_sum": sum(busy) if busy else None,
        "gpu_utilization_samples": len(busy),
        "memory_used_bytes_max": max(used) if used else None,
    }
