"""Storage throughput that GPUs demand, compared with the measured one.

All of it is compared in images a second: a GPU asks for images, and those of each data
set have another size.

References
----------
https://github.com/mlcommons/storage/blob/main/Submission_guidelines.md
(accelerator utilization of at least 90 %)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from nbkit import statistics
from nbkit.statistics import MINIMUM_RUNS, PRACTICAL_MARGIN, Summary

UTILIZATION_NEEDED = 0.9
"""Accelerator utilization that MLPerf Storage requires."""

Origin: TypeAlias = Literal["read", "loader"]


@dataclass(frozen=True)
class Demand:
    """Input rate that GPUs require, from a published training rate."""

    gpu_name: str
    gpus: int
    images_per_second: float
    """Of all GPUs together."""
    source: str
    """Publisher and conditions of the rate of one GPU."""


@dataclass(frozen=True)
class Supply:
    """Measured throughput of a place."""

    place: str
    what: str
    """Such as ``random reads, cold`` or ``loader, first epoch``."""
    origin: Origin
    """``read``: reads alone. ``loader``: images, read and decoded."""
    images_per_second: Summary
    """Images/s of a loader; for reads, bytes/s / mean image size."""
    bytes_per_image: float
    """Mean image size of the data set at this place."""
    decides: bool
    """Whether this limits training from cold storage: random cold reads, and the first,
    cold epoch of a loader."""

    @property
    def bytes_per_second(self) -> Summary:
        """Measured bytes/s; for a loader, images/s x mean image size."""
        return scaled(self.images_per_second, self.bytes_per_image)


@dataclass(frozen=True)
class EpochRates:
    """Rates of one run in the first epoch, which may be cold, and in later ones."""

    first_images_per_second: float | None
    """Images / time without warm-up; None if all steps are warm-up."""
    later_images_per_second: float | None
    """None with a single epoch."""
    first_utilization: float | None = None
    """Utilization of an emulated accelerator; None without emulation."""
    later_utilization: float | None = None


def epoch_rates(
    lines: Sequence[Mapping[str, Any]], emulated_step_seconds: float = 0.0
) -> EpochRates:
    """Return a run's rates in the first epoch and in later ones."""
    steps = [line for line in lines if line["kind"] == "step"]
    parts = (
        [step for step in steps if step["epoch"] == 0],
        [step for step in steps if step["epoch"] > 0],
    )
    rates = [
        statistics.images_per_second(statistics.measured_steps(part)) for part in parts
    ]
    # Of a run its first step alone counts nowhere. A later part begins with its own
    # first step, with the stall between epochs: the step before it is given too.
    counted = (parts[0], steps[max(len(parts[0]) - 1, 0) :] if parts[1] else [])
    shares = [
        statistics.accelerator_utilization(part, emulated_step_seconds)
        for part in counted
    ]
    return EpochRates(*rates, *shares)


def scaled(summary: Summary, factor: float) -> Summary:
    """Return the same measurements in a different unit."""
    names = ("median", "q25", "q75", "mad", "minimum", "maximum")
    return replace(
        summary,
        **{name: getattr(summary, name) * factor for name in names},
        ci_low=None if summary.ci_low is None else summary.ci_low * factor,
        ci_high=None if summary.ci_high is None else summary.ci_high * factor,
    )


def judge_utilization(summary: Summary) -> str:
    """Return the verdict on accelerator utilization in a few words."""
    if summary.n < MINIMUM_RUNS or summary.ci_low is None or summary.ci_high is None:
        return "not enough runs"
    if summary.ci_low >= UTILIZATION_NEEDED:
        return "kept busy"
    return "starved" if summary.ci_high < UTILIZATION_NEEDED else "not settled"


_DECODING = "Reading and decoding on these CPUs is the bottleneck"


def limit_sentence(demand: Demand, supplies: Sequence[Supply]) -> str:
    """Return whether storage or loader is below the demand, by medians."""
    needed = demand.images_per_second
    reads, loader = _best(supplies, "read"), _best(supplies, "loader")
    loaded, decodes = "no loader was measured cold", None
    if loader is not None:
        decodes = loader.images_per_second.median
        loaded = (
            f"the loader delivers {decodes:,.0f} images/s cold ({needed:,.0f} needed; "
            f"{loader.place})"
        )
    if reads is None:
        is_slow = decodes is not None and decodes < needed
        end = "; the bottleneck is unknown" if is_slow else ""
        return f"No cold random reads were measured; {loaded}{end}."
    read = reads.images_per_second.median
    given = (
        f"cold random reads deliver {reads.bytes_per_second.median / 1e9:.3g} GB/s "
        f"({needed * reads.bytes_per_image / 1e9:.3g} needed)"
    )
    if read >= needed:
        if decodes is None or decodes >= needed:
            return f"The storage meets the demand: {given}; {loaded}."
        return f"The storage meets the demand: {given}. {_DECODING}: {loaded}."
    if decodes is None or decodes >= min(needed, (1 + PRACTICAL_MARGIN) * read):
        # A pack is read in order, which may be faster than at random.
        end = f", but {loaded}" if decodes and decodes >= needed else ""
        return f"The storage is below the demand: {given}{end}."
    both = f"Storage and loader are below the demand: {given}, and {loaded}"
    if decodes < (1 - PRACTICAL_MARGIN) * read:
        return f"{both}. {_DECODING}."
    return (
        f"{both}. Reads reach {read:,.0f} images/s, within {PRACTICAL_MARGIN:.0%} of "
        "the loader's rate, so the bottleneck is unknown."
    )


def _best(supplies: Sequence[Supply], origin: Origin) -> Supply | None:
    """Return the fastest of its kind among those that decide."""
    deciding = [
        supply for supply in supplies if supply.origin == origin and supply.decides
    ]
    return max(
        deciding, key=lambda supply: supply.images_per_second.median, default=None
    )
