"""What GPUs ask of storage, what it gives, and which part of the way is too slow.

All of it in bytes a second: a GPU asks for images, and an image has so many bytes.

References
----------
https://github.com/mlcommons/storage/blob/main/Submission_guidelines.md
(accelerator utilization of at least 90 %)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from nbkit import statistics
from nbkit.statistics import MINIMUM_RUNS, Summary

__all__ = [
    "UTILIZATION_NEEDED",
    "Demand",
    "EpochRates",
    "Supply",
    "epoch_rates",
    "judge_utilization",
    "limit_sentence",
]

UTILIZATION_NEEDED = 0.9
"""Part of the time in which an accelerator has to compute, by MLPerf Storage."""

Origin: TypeAlias = Literal["read", "loader"]


@dataclass(frozen=True)
class Demand:
    """What GPUs ask of their input; the rate is a published one."""

    gpu_name: str
    gpus: int
    images_per_second: float
    """Of all GPUs together."""
    bytes_per_image: float
    source: str
    """Who published the rate of one GPU, and under which conditions."""

    @property
    def bytes_per_second(self) -> float:
        """Images a second times the mean size of an image."""
        return self.images_per_second * self.bytes_per_image


@dataclass(frozen=True)
class Supply:
    """What a place gives, measured in one way."""

    place: str
    what: str
    """Such as ``random reads, cold`` or ``loader, first epoch``."""
    origin: Origin
    """``read``: reads alone. ``loader``: images, read and decoded."""
    bytes_per_second: Summary
    decides: bool
    """Whether a training from cold storage gets no more than this: random cold reads,
    and the first epoch of a loader."""


@dataclass(frozen=True)
class EpochRates:
    """One run: its first epoch, which may be cold, and the later ones."""

    first_images_per_second: float | None
    """Images over time, without warm-up; None where all of it is warm-up."""
    later_images_per_second: float | None
    """None with a single epoch."""
    first_utilization: float | None = None
    """Of an emulated accelerator; None where none is emulated."""
    later_utilization: float | None = None


def epoch_rates(
    lines: Sequence[Mapping[str, Any]], emulated_step_seconds: float = 0.0
) -> EpochRates:
    """Return a run's rates, its first epoch apart from the later ones.

    Parameters
    ----------
    lines
        Lines of ``metrics.jsonl``.
    emulated_step_seconds
        Time that a step of an emulated accelerator takes.
    """
    steps = [line for line in lines if line["kind"] == "step"]
    parts = (
        [step for step in steps if step["epoch"] == 0],
        [step for step in steps if step["epoch"] > 0],
    )
    rates = [_rate(statistics.measured_steps(part)) for part in parts]
    shares = [
        statistics.accelerator_utilization(part, emulated_step_seconds)
        if emulated_step_seconds and part
        else None
        for part in parts
    ]
    return EpochRates(*rates, *shares)


def _rate(steps: Sequence[Mapping[str, Any]]) -> float | None:
    # A loader delivers in bursts: the median of its steps would say nothing.
    return statistics.share(
        [step["images"] for step in steps],
        [step["step_time_seconds"] for step in steps],
    )


def judge_utilization(found: Summary) -> str:
    """Return whether an emulated accelerator is kept busy, in a few words.

    Parameters
    ----------
    found
        Its utilization over runs.
    """
    if found.n < MINIMUM_RUNS or found.ci_low is None or found.ci_high is None:
        return "not enough runs"
    if found.ci_low >= UTILIZATION_NEEDED:
        return "kept busy"
    return "starved" if found.ci_high < UTILIZATION_NEEDED else "not settled"


def limit_sentence(demand: Demand, supplies: Sequence[Supply]) -> str:
    """Return which part of the way from storage to GPU is below the demand, by medians.

    Parameters
    ----------
    demand
        What is asked for.
    supplies
        Of one place, in every way that was measured.
    """
    asked = demand.bytes_per_second
    reads = _best(supplies, "read")
    loaders = _best(supplies, "loader")
    if loaders is not None and loaders >= asked:
        return "Reads and loader give what is asked for."
    if reads is None:
        return "How fast the storage could be read without a loader was not measured."
    if reads < asked:
        return (
            f"The storage is below the demand: cold random reads give "
            f"{reads / 1e9:.3g} of {asked / 1e9:.3g} GB/s."
        )
    said = f"The storage could give it ({reads / 1e9:.3g} GB/s in cold random reads)"
    if loaders is None:
        return f"{said}; no loader was measured."
    return (
        f"{said}; reading and decoding images with these CPUs gives "
        f"{loaders / 1e9:.3g} of {asked / 1e9:.3g} GB/s, so that the loader is the "
        "limit and not the storage."
    )


def _best(supplies: Sequence[Supply], origin: Origin) -> float | None:
    """Return the largest rate of its kind among those that decide."""
    rates = [
        one.bytes_per_second.median
        for one in supplies
        if one.origin == origin and one.decides
    ]
    return max(rates, default=None)
