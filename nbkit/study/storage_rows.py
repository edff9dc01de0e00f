"""The runs of a storage study in numbers: epoch by epoch, and how cold they began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nbkit import statistics
from nbkit.analysis.storage import EpochRates, epoch_rates, judge_utilization
from nbkit.launch.run import Run
from nbkit.statistics import Summary, median_of
from nbkit.study.storage_over_time import arrived_bytes

__all__ = ["EpochRow", "epoch_row"]


@dataclass(frozen=True)
class EpochRow:
    """What the runs of one arm show; every number is over runs."""

    arm: str
    stage: str
    """``load``, ``emulate`` or ``train``."""
    source: str
    n: int
    """Finished process starts."""
    first: Summary | None
    """Images/s in the first epoch; None where a run has none."""
    later: Summary | None
    """Images/s in all later epochs."""
    first_utilization: Summary | None
    """Of an emulated accelerator in the first epoch; None where none is emulated."""
    later_utilization: Summary | None
    data_wait_share: float | None
    arrived_bytes: float | None
    """What disks or network cards of the host delivered during a run."""
    first_runs: tuple[float, ...]
    """Images/s of each run in its first epoch; empty where a run has none."""
    later_runs: tuple[float, ...]
    """The same of all later epochs."""
    cache: str
    """State before each run: the least that was known of any of them."""
    is_proven: bool
    """Whether every run's first epoch had to come from the storage."""

    @property
    def verdict(self) -> str | None:
        """Whether the emulated accelerator is kept busy in the first epoch."""
        found = self.first_utilization
        return None if found is None else judge_utilization(found)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {**asdict(self), "verdict": self.verdict}


def epoch_row(
    arm: str, runs: Sequence[Run], *, stage: str, source: str, from_network: bool
) -> EpochRow:
    """Return what finished runs of an arm show; there is one.

    Parameters
    ----------
    arm, stage, source
        What they are called in the plan.
    runs
        Finished.
    from_network
        Whether the data lie on a file server.
    """
    rates = [
        epoch_rates(run.metrics(), run.config.emulated_step_seconds) for run in runs
    ]
    tags = [run.record.get("tags") or {} for run in runs]
    return EpochRow(
        arm=arm,
        stage=stage,
        source=source,
        n=len(runs),
        first=_summary(rates, "first_images_per_second"),
        later=_summary(rates, "later_images_per_second"),
        first_utilization=_summary(rates, "first_utilization"),
        later_utilization=_summary(rates, "later_utilization"),
        data_wait_share=median_of(runs, lambda run: run.summary.data_wait_share),
        arrived_bytes=median_of(
            runs, lambda run: arrived_bytes(run, from_network=from_network)
        ),
        first_runs=_each(rates, "first_images_per_second"),
        later_runs=_each(rates, "later_images_per_second"),
        cache=_least_known(tags),
        is_proven=all(one.get("cache_proven") == "yes" for one in tags),
    )


def _each(rates: Sequence[EpochRates], name: str) -> tuple[float, ...]:
    """Return a number of every run; nothing if one of them has none."""
    values = tuple(getattr(one, name) for one in rates)
    return () if None in values else values


def _summary(rates: Sequence[EpochRates], name: str) -> Summary | None:
    values = _each(rates, name)
    return statistics.summarise(values) if values else None


def _least_known(tags: Sequence[Mapping[str, str]]) -> str:
    """Return the state of the run of which least is known."""
    worst = min(tags, key=lambda one: (one.get("cache_proven", ""), "cache" in one))
    if "cache" not in worst:
        return "not known"
    name = worst["cache"]
    if name == "client cold":
        return "client cold, server unknown"
    return f"{name}, proven" if worst["cache_proven"] == "yes" else name
