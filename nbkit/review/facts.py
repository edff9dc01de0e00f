"""Facts for a diagnosis: times of a run's ranks, and its surroundings.

The ranks' own times are known once they have left the loop. Of a run that continues, or
that has failed, there are the steps of rank 0 only, and `Facts.all_ranks` says so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from nbkit import statistics
from nbkit.review.samples import Load, Span, read_load
from nbkit.store.record import read_json
from nbkit.store.stored_runs import StoredRun
from nbkit.store.summary import ranks_of_window

Line = Mapping[str, Any]


@dataclass(frozen=True)
class RankTimes:
    """Times of one rank over its measured steps; None is unknown."""

    rank: int
    steps: int
    """From the newest attempt, if the rank recorded them."""
    total_seconds: float
    data_wait_seconds: float
    communication_seconds: float
    """Communication that is not overlapped with computation."""
    cpu_seconds: float | None = None
    """With its loading processes."""
    cpu_queue_seconds: float | None = None
    """Time in which the training thread was runnable but off-CPU."""
    cpus: Sequence[int] | None = None
    """Indices of the CPUs that it may use."""
    num_cpus: int | None = None
    """Of its host."""
    cpu_quota: float | None = None
    """CPU quota of its cgroups, in CPUs."""
    host_busy_cpus: float | None = None
    """Average number of busy CPUs of its host, by all processes."""
    node: str | None = None
    """Its node, for engines that name nodes."""

    def share(self, seconds: float | None) -> float | None:
        """Return a time as a share of the total."""
        if seconds is None or self.total_seconds <= 0:
            return None
        return seconds / self.total_seconds

    @property
    def own_share(self) -> float:
        """Share of the time in which it did not wait for other ranks."""
        return 1 - (self.share(self.communication_seconds) or 0.0)


@dataclass(frozen=True)
class Facts:
    """The facts of one run, read from its files."""

    config: Line
    worker: Line
    record: Line
    steps: int
    """Measured ones."""
    images_per_second: float | None
    """Rate over the measured steps, of all ranks."""
    ranks: Sequence[RankTimes]
    """Times of all ranks, or only of rank 0; empty without a measured step."""
    all_ranks: bool
    update_share: float | None
    """Share of rank 0's step time in optimizer updates, by their median, so that a few
    updates with other load do not count. None is unknown."""
    load: Load | None
    """None if too little was sampled."""

    @property
    def on_gpus(self) -> bool:
        """Whether it computes on GPUs."""
        return self.worker.get("device_type") == "cuda"

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return _world_size(self.config, self.worker)

    @property
    def device_name(self) -> str | None:
        """Of rank 0."""
        return (self.devices or [{}])[0].get("name")

    @property
    def devices(self) -> Sequence[Line]:
        """What each rank computes on."""
        return self.worker.get("devices") or []

    @property
    def num_cpus(self) -> int | None:
        """Number of CPUs of the host; None for several hosts."""
        if (self.config.get("nnodes") or 1) > 1:
            return None
        return (self.record.get("machine") or {}).get("num_cpus")

    @property
    def is_inference(self) -> bool:
        """Whether it is an inference run."""
        return self.config.get("task") == "inference"

    @property
    def is_load(self) -> bool:
        """Whether it only loads images, without training."""
        return self.config.get("task") == "load"

    @property
    def least_data_wait(self) -> float:
        """Minimum share of data wait over all ranks."""
        return self._least("data_wait_seconds")

    @property
    def least_communication(self) -> float:
        """Minimum share of exposed communication over all ranks."""
        return self._least("communication_seconds") if self.world_size > 1 else 0.0

    @property
    def lost_to_input(self) -> float:
        """Minimum share of time that every rank lost to waiting for images.

        0 for a run that only loads images. With emulated GPUs, it includes waiting for
        other ranks, because they wait for the images of the slowest rank.
        """
        if not self.is_load:
            return self.least_data_wait
        if not self.config.get("emulated_step_seconds"):
            return 0.0
        return self.least_data_wait + self.least_communication

    @property
    def run_cpus(self) -> float | None:
        """Average number of CPUs that its processes used."""
        used = [rank.share(rank.cpu_seconds) for rank in self.ranks]
        known = [share for share in used if share is not None]
        if self.all_ranks and known and len(known) == len(used):
            return sum(known)
        return None if self.load is None else self.load.run_cpus

    @property
    def busy_cpus(self) -> float | None:
        """Average number of busy CPUs of the host; None for several hosts.

        From samples, or from the first rank's counters if the run is too short.
        """
        if self.num_cpus is None:
            return None
        if self.load is not None and self.load.busy_cpus is not None:
            return self.load.busy_cpus
        return self.ranks[0].host_busy_cpus if self.ranks else None

    @property
    def queue_share(self) -> float | None:
        """Largest share of a rank's time in which it was runnable but off-CPU."""
        shares = [rank.share(rank.cpu_queue_seconds) for rank in self.ranks]
        return max((share for share in shares if share is not None), default=None)

    def _least(self, part: str) -> float:
        shares = [rank.share(getattr(rank, part)) for rank in self.ranks]
        return min((share for share in shares if share is not None), default=0.0)


def facts_of(run: StoredRun) -> Facts:
    """Return the facts of a run from its files."""
    steps = statistics.measured_steps(run.metrics())
    record, worker = run.record, run.worker
    series = [line for line in run.metrics("inference") if "began" in line]
    return put_together(
        read_json(run.paths.config) or {},
        worker,
        record,
        steps=len(steps) or len(series),
        images_per_second=statistics.images_per_second(steps),
        rank_0=_summed(steps),
        update_share=update_share(steps),
        load=_load(run, _spans(steps or series), record),
    )


def put_together(
    config: Line,
    worker: Line,
    record: Line,
    *,
    steps: int,
    images_per_second: float | None,
    rank_0: RankTimes | None,
    update_share: float | None,
    load: Load | None = None,
) -> Facts:
    """Return the facts, with the times of all ranks if they were written."""
    written = ranks_of_window(worker, steps)
    known = [_rank_times(rank) for rank in written if rank.get("step_time_seconds")]
    all_ranks = bool(written) and len(known) == len(written)
    ranks = known if all_ranks else [rank_0] if rank_0 is not None and steps else []
    return Facts(
        config=config,
        worker=worker,
        record=record,
        steps=steps,
        images_per_second=images_per_second,
        ranks=ranks if steps else [],
        all_ranks=all_ranks or _world_size(config, worker) == 1,
        update_share=update_share,
        load=load,
    )


def update_share(steps: Collection[Line]) -> float | None:
    """Return the share of the step time in optimizer updates.

    It uses the median update, because other load makes single updates long. None if a
    step has no update time, as in runs of earlier versions.
    """
    known = (step.get("update_seconds") for step in steps)
    updates = [seconds for seconds in known if seconds is not None]
    if not updates or len(updates) < len(steps):
        return None
    seconds = [step["step_time_seconds"] for step in steps]
    return statistics.share([median(updates)] * len(updates), seconds)


def _world_size(config: Line, worker: Line) -> int:
    nodes, gpus = config.get("nnodes") or 1, config.get("gpus") or 1
    return worker.get("world_size") or nodes * gpus


def _rank_times(rank: Line) -> RankTimes:
    busy, counted = rank.get("host_cpu_seconds"), rank.get("counted_seconds")
    optional = ("cpu_seconds", "cpu_queue_seconds", "cpus", "num_cpus", "cpu_quota")
    host_busy_cpus = None if busy is None or not counted else busy / counted
    return RankTimes(
        rank=rank["rank"],
        steps=rank["steps"],
        total_seconds=rank["step_time_seconds"],
        data_wait_seconds=rank["data_wait_seconds"],
        communication_seconds=rank["communication_exposed_seconds"],
        host_busy_cpus=host_busy_cpus,
        node=rank.get("node"),
        **{name: rank.get(name) for name in optional},
    )


def _summed(steps: Sequence[Line]) -> RankTimes | None:
    if not steps:
        return None
    return RankTimes(
        rank=0,
        steps=len(steps),
        total_seconds=sum(step["step_time_seconds"] for step in steps),
        data_wait_seconds=sum(step["data_wait_seconds"] for step in steps),
        communication_seconds=sum(
            step["communication_exposed_seconds"] for step in steps
        ),
    )


def _spans(lines: Sequence[Line]) -> list[Span]:
    """Return when steps were computed, or series of passes of an inference."""
    return [
        (line["began"], line["ended"])
        if "began" in line
        else (line["t"] - line["step_time_seconds"], line["t"])
        for line in lines
    ]


def _load(run: StoredRun, spans: Sequence[Span], record: Line) -> Load | None:
    if not spans:
        return None
    identities = map(read_json, run.paths.process_files())
    return read_load(
        run.paths.system_folder,
        spans,
        num_cpus=(record.get("machine") or {}).get("num_cpus"),
        run_pids=[identity["pid"] for identity in identities if identity],
    )
