"""Throughput of storage runs by epoch, and proof of a cold cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nbkit import statistics
from nbkit.launch.run import Run
from nbkit.questions.storage.demand import EpochRates, epoch_rates, judge_utilization
from nbkit.questions.storage.timeline import arrived_bytes
from nbkit.readspeed.cache import missing_bytes
from nbkit.readspeed.places import Counter
from nbkit.statistics import Summary, median_of

_NOT_PROVEN = "not proven"


@dataclass(frozen=True)
class EpochRow:
    """Results of one arm, over its runs."""

    arm: str
    stage: str
    """``load``, ``emulate`` or ``train``."""
    source: str
    n: int
    """Finished process starts."""
    first: Summary | None
    """Images/s in the first epoch; None if a run has no value."""
    later: Summary | None
    """Images/s in all later epochs."""
    first_utilization: Summary | None
    """Accelerator utilization in the first epoch; None without emulation."""
    later_utilization: Summary | None
    data_wait_share: float | None
    arrived_bytes: float | None
    """Bytes from disks or network cards of the host during a run; None if no counter
    includes the data."""
    first_runs: tuple[float, ...]
    """Images/s of each run in its first epoch; empty if a run has no value."""
    later_runs: tuple[float, ...]
    """Images/s of each run in all later epochs."""
    cache: str
    """Cache state before each run: the least certain of all runs. It includes the bytes
    that were read if these are too few for a cold cache."""
    is_cold: bool
    """Whether the cache was cold before every run, and the bytes read, if counted, do
    not contradict it."""

    @property
    def verdict(self) -> str | None:
        """Verdict on the utilization of the emulated accelerator in the first epoch."""
        utilization = self.first_utilization
        return None if utilization is None else judge_utilization(utilization)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {**asdict(self), "verdict": self.verdict}


def epoch_row(
    arm: str,
    runs: Sequence[Run],
    *,
    stage: str,
    source: str,
    bytes_per_image: float,
    counter: Counter | None,
) -> EpochRow:
    """Return the results of an arm from its finished runs (at least one)."""
    lines = [run.metrics() for run in runs]
    rates = [
        epoch_rates(run_lines, run.config.emulated_step_seconds)
        for run, run_lines in zip(runs, lines, strict=True)
    ]
    recorded = [run.record.get("tags") or {} for run in runs]
    needed = [_first_epoch(line, bytes_per_image) for line in lines]
    counted = [arrived_bytes(run, counter) for run in runs]
    checked = [*map(_checked, recorded, counted, needed)]
    tags, arrived = [tag for tag, _ in checked], [came for _, came in checked]
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
        arrived_bytes=median_of(arrived, lambda came: came),
        first_runs=_each(rates, "first_images_per_second"),
        later_runs=_each(rates, "later_images_per_second"),
        cache=_least_known(tags),
        is_cold=all(_is_cold(tag) for tag in tags),
    )


def _first_epoch(lines: Sequence[Mapping[str, Any]], bytes_per_image: float) -> float:
    """Return how many bytes the images of a run's first epoch have."""
    images = sum(
        line["images"] for line in lines if line["kind"] == "step" and not line["epoch"]
    )
    return images * bytes_per_image


def _checked(
    tags: Mapping[str, str], arrived: float | None, needed: float
) -> tuple[Mapping[str, str], float | None]:
    """Return a run's tags and what arrived, without what the other one contradicts.

    Too little for a cold epoch disproves a proof. Without one it came by a way that is
    not counted, as in a container with its own network.
    """
    missing = None if arrived is None else missing_bytes(arrived, needed)
    if missing is None:
        return tags, arrived
    if tags.get("cache_proven") == "yes":
        cache = f"{_NOT_PROVEN} (only {missing} read)"
        return {**tags, "cache": cache, "cache_proven": ""}, arrived
    return tags, None if _is_cold(tags) else arrived


def _is_cold(tags: Mapping[str, str]) -> bool:
    cache = tags.get("cache", "")
    return not (not cache or cache.startswith(_NOT_PROVEN) or "warm" in cache)


def _each(rates: Sequence[EpochRates], name: str) -> tuple[float, ...]:
    """Return a number of every run; nothing if one of them has none."""
    return tuple(statistics.all_known(getattr(rate, name) for rate in rates))


def _summary(rates: Sequence[EpochRates], name: str) -> Summary | None:
    values = _each(rates, name)
    return statistics.summarise(values) if values else None


def _least_known(tags: Sequence[Mapping[str, str]]) -> str:
    """Return the state of the run of which least is known."""

    def certainty(tag: Mapping[str, str]) -> tuple[str, bool, bool]:
        return tag.get("cache_proven", ""), "cache" in tag, tag.get("cache") == "warm"

    worst = min(tags, key=certainty)
    if "cache" not in worst:
        return "not known"
    proven = ", proven" if worst["cache_proven"] == "yes" else ""
    return f"{worst['cache']}{proven}"
