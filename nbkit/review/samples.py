"""CPU and GPU samples over a run's measured steps.

Only samples inside a measured step count: what a machine does while a run starts,
evaluates, or writes a checkpoint bounds none of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from nbkit.reading import regular_files
from nbkit.telemetry.sample import SLOWDOWN_REASONS
from nbkit.telemetry.system import system_rows

_MINIMUM_SECONDS = 2.0
"""Shares of a shorter time are shares of one or two samples."""

_FOUND_SECONDS = 10.0
"""The sampler finds new processes within five seconds: before that, a run's own loading
processes would count as another process's."""

_POWER_CAP = "power cap"

Line = dict[str, Any]
Span = tuple[float, float]
Seen = tuple[str, str | None, int]
"""A process on a GPU: its host, MIG instance and pid."""


@dataclass
class GpuLoad:
    """Load of one GPU over the measured steps; None is unknown."""

    uuid: str
    sm_clock_max_mhz: int | None = None
    utilization_percent: list[int] = field(default_factory=list)
    """Each reading."""
    sm_clock_mhz: list[int] = field(default_factory=list)
    slowed: dict[str, int] = field(default_factory=dict)
    """Number of readings with each throttle reason."""
    known_readings: int = 0
    """Number of readings with known throttle reasons."""

    @property
    def busy_share(self) -> float | None:
        """Share of the time in which at least one kernel ran."""
        readings = self.utilization_percent
        return fmean(readings) / 100 if readings else None

    @property
    def idle_share(self) -> float | None:
        """Share of the readings without a running kernel."""
        readings = self.utilization_percent
        return readings.count(0) / len(readings) if readings else None

    @property
    def clock_lost(self) -> float | None:
        """Average reduction of the clock, relative to the maximum clock."""
        if not self.sm_clock_mhz or not self.sm_clock_max_mhz:
            return None
        return max(0.0, 1 - fmean(self.sm_clock_mhz) / self.sm_clock_max_mhz)

    @property
    def slowed_share(self) -> float | None:
        """Share of the time throttled by temperature or hardware."""
        others = [n for reason, n in self.slowed.items() if reason != _POWER_CAP]
        return (
            max(others, default=0) / self.known_readings
            if self.known_readings
            else None
        )

    @property
    def capped_share(self) -> float | None:
        """Share of the time throttled by the power limit."""
        return (
            self.slowed.get(_POWER_CAP, 0) / self.known_readings
            if self.known_readings
            else None
        )

    @property
    def slowing_reasons(self) -> list[str]:
        """Throttle reasons except the power limit, the most frequent first."""
        others = self.slowed.keys() - {_POWER_CAP}
        return sorted(others, key=lambda reason: (-self.slowed[reason], reason))


@dataclass(frozen=True)
class Load:
    """Samples of GPUs and CPUs over the measured steps."""

    seconds: float
    """Between neighbours of the samples that count."""
    busy_cpus: float | None
    """Average number of busy CPUs of the host, by all processes."""
    run_cpus: float | None
    """CPUs that the run's processes used; None until all of them are known."""
    gpus: Sequence[GpuLoad]
    strangers: Sequence[float] | None
    """Share of its host's samples with each other process on the run's GPUs; None if
    unknown."""


def read_load(
    folder: Path,
    steps: Iterable[Span],
    num_cpus: int | None,
    run_pids: Collection[int],
) -> Load | None:
    """Return the load in some steps; None if too little was sampled."""
    reading = _Reading(set(run_pids))
    spans = _joined(steps)
    begins = [begin for begin, _ in spans]
    paths = regular_files(folder, ".jsonl")
    for path in paths:
        before: Line | None = None
        for row in system_rows(path):
            if row.get("kind") == "header":
                reading.take_header(row)
                before = None
            elif (last := bisect_right(begins, row["t"])) and (
                row["t"] <= spans[last - 1][1]
            ):
                reading.take(row, before, path.stem)
                before = row
            else:
                before = None
    if reading.seconds < _MINIMUM_SECONDS:
        return None
    several = len(paths) > 1
    return Load(
        seconds=reading.seconds,
        busy_cpus=None if several else reading.busy_cpus(num_cpus),
        run_cpus=None if several else reading.run_cpus(),
        gpus=list(reading.gpus.values()),
        strangers=reading.strangers() if reading.own_parts else None,
    )


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Return spans of time in their order, those that touch as one."""
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


@dataclass
class _Reading:
    run_pids: set[int]
    seconds: float = 0.0
    busy_seconds: float = 0.0
    """Of one CPU that stands for all."""
    told_seconds: float = 0.0
    used_seconds: float = 0.0
    """CPU seconds of the run's processes."""
    found_seconds: float = 0.0
    """In which they were counted."""
    clocks: dict[str, int] = field(default_factory=dict)
    gpus: dict[str, GpuLoad] = field(default_factory=dict)
    looked: Counter[str] = field(default_factory=Counter[str])
    """Samples of each host that say which processes are on its GPUs."""
    seen: Counter[Seen] = field(default_factory=Counter[Seen])
    """Samples with each process that is not a rank."""
    own_parts: set[str | None] = field(default_factory=set)
    """MIG instances on which ranks were seen; None is a GPU that is not divided."""

    def take_header(self, header: Line) -> None:
        for device in header.get("devices") or ():
            if device.get("sm_clock_max_mhz"):
                self.clocks[str(device.get("uuid"))] = device["sm_clock_max_mhz"]

    def take(self, row: Line, before: Line | None, host_name: str) -> None:
        """Take a sample, and the time since the one before, if that counts too."""
        host = row.get("host") or {}
        if before is not None:
            passed = row["t"] - before["t"]
            self.seconds += passed
            if host.get("cpu_percent") is not None:
                self.busy_seconds += passed * host["cpu_percent"] / 100
                self.told_seconds += passed
            used = host.get("processes_cpu_seconds")
            used_before = (before.get("host") or {}).get("processes_cpu_seconds")
            if used is not None and used_before is not None:
                self.used_seconds += used - used_before
                self.found_seconds += passed
        gpus = row.get("gpus") or ()
        for gpu in gpus:
            self._take_gpu(gpu)
        known_processes = [
            gpu["processes"] for gpu in gpus if gpu.get("processes") is not None
        ]
        if known_processes:
            there = {
                (host_name, process.get("mig_uuid"), process["pid"])
                for processes in known_processes
                for process in processes
                if process["pid"] is not None
            }
            own = {seen for seen in there if seen[2] in self.run_pids}
            self.own_parts.update(part for _, part, _ in own)
            self.looked[host_name] += 1
            self.seen.update(there - own)

    def _take_gpu(self, gpu: Line) -> None:
        uuid = str(gpu.get("uuid") or gpu["index"])
        load = self.gpus.setdefault(uuid, GpuLoad(uuid, self.clocks.get(uuid)))
        if gpu.get("gpu_utilization_percent") is not None:
            load.utilization_percent.append(gpu["gpu_utilization_percent"])
        if gpu.get("sm_clock_mhz") is not None:
            load.sm_clock_mhz.append(gpu["sm_clock_mhz"])
        if gpu.get("clock_event_reasons") is not None:
            load.known_readings += 1
            for reason in SLOWDOWN_REASONS.intersection(gpu["clock_event_reasons"]):
                load.slowed[reason] = load.slowed.get(reason, 0) + 1

    def strangers(self) -> list[float]:
        return [
            count / self.looked[host]
            for (host, part, _), count in self.seen.items()
            if part in self.own_parts
        ]

    def busy_cpus(self, num_cpus: int | None) -> float | None:
        if num_cpus is None or self.told_seconds < _MINIMUM_SECONDS:
            return None
        return num_cpus * self.busy_seconds / self.told_seconds

    def run_cpus(self) -> float | None:
        if self.found_seconds < _FOUND_SECONDS:
            return None
        return max(0.0, self.used_seconds) / self.found_seconds
