"""Totals of a run's samples: energy, throttled seconds, other GPU users."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbkit.reading import lines_of, open_regular, parse_object
from nbkit.telemetry.sample import GpuSample, Sample

_MACHINE = ("driver_version", "cuda_driver_version", "devices", "topology", "p2p")


def summarise_system(path: Path, run_pids: Collection[int]) -> dict[str, Any] | None:
    """Return raw sums over a run's samples; None without samples."""
    # In a container with its own pids, NVML gives the host's pids or none at all, and
    # the run's own processes would pass for strangers. Strangers are counted only if
    # one of the ranks was seen on the GPUs, which shows that both speak of the same
    # pids. Of a GPU that is divided into MIG instances, those on the instances of ranks
    # count.
    sums = _Sums(set(run_pids))
    for row in system_rows(path):
        if row["kind"] == "header":
            sums.begin(row)
        else:
            sums.add(Sample.from_dict(row))
    return sums.to_dict() if sums.samples else None


def summarise_systems(
    files: Mapping[str, Path], run_pids: Collection[int]
) -> dict[str, Any] | None:
    """Return raw sums over the samples of all nodes of a run; None without samples."""
    nodes = {name: summarise_system(file, run_pids) for name, file in files.items()}
    summaries = [node for node in nodes.values() if node is not None]
    if len(nodes) < 2 or not summaries:
        return next(iter(summaries), None)
    strangers = [node["other_gpu_processes"] for node in summaries]
    total = sum(count or 0 for count in strangers)
    gpus: dict[str, dict[str, Any]] = {}
    seconds: Counter[str | None] = Counter()
    for node in summaries:
        seconds[None] = max(seconds[None], node["seconds"])
        for uuid, gpu in node["gpus"].items():
            seconds[uuid] += node["seconds"]
            gpus[uuid] = _added(gpus[uuid], gpu) if uuid in gpus else gpu
    return {
        **summaries[0],
        "samples": sum(node["samples"] for node in summaries),
        "seconds": max(seconds.values()),
        "gpus": gpus,
        # Those of one node count, though another says nothing.
        "other_gpu_processes": None if None in strangers and not total else total,
        "nodes": nodes,
    }


def _added(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sums of a GPU in two files: a resumed container has another name."""
    parts = {name: (first[name], second[name]) for name in first}
    used = [size or 0 for size in parts.pop("memory_used_bytes_max")]
    added = {name: None if None in both else sum(both) for name, both in parts.items()}
    return {**added, "memory_used_bytes_max": max(used) or None}


def system_rows(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the headers and samples of one sampler's file; none without it."""
    with suppress(FileNotFoundError), open_regular(path) as file:
        for line in lines_of(file, path):
            # One may be half written where the host went down.
            with suppress(json.JSONDecodeError):
                yield parse_object(line)


@dataclass
class _Gpu:
    """Sums of one GPU; None is what was never read."""

    energy_joules: float | None = None
    slowed_seconds: float | None = None
    gpu_utilization_percent_sum: int | None = None
    gpu_utilization_samples: int = 0
    memory_used_bytes_max: int | None = None

    def add(self, gpu: GpuSample) -> None:
        busy, used = gpu.gpu_utilization_percent, gpu.memory_used_bytes
        if busy is not None:
            total = self.gpu_utilization_percent_sum or 0
            self.gpu_utilization_percent_sum = total + busy
            self.gpu_utilization_samples += 1
        if used is not None:
            self.memory_used_bytes_max = max(used, self.memory_used_bytes_max or 0)

    def count_energy(self, before: float | None, after: float) -> None:
        if before is not None:
            # The counter starts again when the driver is reloaded.
            used = max(0.0, after - before)
            self.energy_joules = (self.energy_joules or 0.0) + used

    def between(self, before: GpuSample, seconds: float) -> None:
        if before.is_slowed is not None:
            slowed = seconds if before.is_slowed else 0.0
            self.slowed_seconds = (self.slowed_seconds or 0.0) + slowed


@dataclass
class _Sums:
    run_pids: set[int]
    samples: int = 0
    seconds: float = 0.0
    header: dict[str, Any] = field(default_factory=dict)
    gpus: dict[str, _Gpu] = field(default_factory=dict)
    own_parts: set[str | None] = field(default_factory=set)
    """MIG instances on which ranks were seen; None for a GPU without MIG."""
    others: set[tuple[int, str | None]] = field(default_factory=set)
    """Other processes, each with the MIG instance that it uses."""
    _last: Sample | None = None
    _counters: dict[str | None, float] = field(default_factory=dict)
    """Energy counters of this attempt, as last read: a reading may be missing."""

    def begin(self, header: dict[str, Any]) -> None:
        """Begin an attempt; the time since the previous one does not count."""
        self.header = header
        self._last = None
        self._counters.clear()

    def add(self, sample: Sample) -> None:
        self.samples += 1
        before = {gpu.uuid: gpu for gpu in self._last.gpus} if self._last else {}
        passed = sample.t - self._last.t if self._last else 0.0
        self.seconds += passed
        for gpu in sample.gpus:
            sums = self.gpus.setdefault(gpu.uuid or str(gpu.index), _Gpu())
            sums.add(gpu)
            if gpu.uuid in before:
                sums.between(before[gpu.uuid], passed)
            # The counter of a GPU with MIG instances is that of all of them.
            if gpu.energy_joules is not None and not gpu.mig_instances:
                sums.count_energy(self._counters.get(gpu.uuid), gpu.energy_joules)
                self._counters[gpu.uuid] = gpu.energy_joules
            if gpu.processes is not None:
                for process in gpu.processes:
                    if process.pid in self.run_pids:
                        self.own_parts.add(process.mig_uuid)
                    elif process.pid is not None:
                        self.others.add((process.pid, process.mig_uuid))
        self._last = sample

    def to_dict(self) -> dict[str, Any]:
        strangers = {pid for pid, part in self.others if part in self.own_parts}
        return {
            "samples": self.samples,
            "seconds": self.seconds,
            "gpus": {uuid: vars(gpu) for uuid, gpu in self.gpus.items()},
            "other_gpu_processes": len(strangers) if self.own_parts else None,
            **{key: self.header.get(key) for key in _MACHINE},
            "gpus_unavailable": self._last.gpus_unavailable if self._last else None,
        }
