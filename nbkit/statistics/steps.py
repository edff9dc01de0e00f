"""The steps of one run: which of them count, and what they add up to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

BURST_MARGIN = 0.05
"""By how much the median step may differ from the rate of its run."""


def measured_steps(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the steps that count: those after the warm-up, which may be none.

    A recorded step is never partial: loaders drop the remainder of an epoch and count
    what they dropped.
    """
    return [row for row in rows if row["kind"] == "step" and not row["warmup"]]


def images_per_second(steps: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the rate of a run: images over the time of these steps.

    A step lasts from the end of the one before, data wait included, so that a stall
    counts with its length. ``None`` without a step.
    """
    return share(
        [step["images"] for step in steps],
        [step["step_time_seconds"] for step in steps],
    )


def step_images_per_second(steps: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the rate of each step: its images over its whole duration.

    Their median is no rate of the run: loading processes deliver in bursts, and most
    steps find their batch waiting.
    """
    return [step["images"] / step["step_time_seconds"] for step in steps]


def bursts_in_words(
    rate: float | None, median_step: float | None, longest_step_seconds: float | None
) -> str | None:
    """Return that steps come in bursts; None where the median step tells the rate."""
    if not rate or median_step is None or longest_step_seconds is None:
        return None
    if abs(median_step / rate - 1) <= BURST_MARGIN:
        return None
    return (
        f"steps come in bursts: {median_step:,.4g} images/s in the median step, "
        f"{rate:,.4g} over time; the longest step took "
        f"{longest_step_seconds:,.3g} s"
    )


def share(parts: Sequence[float], totals: Sequence[float]) -> float | None:
    """Return the part of the total time spent in something, between 0 and 1.

    Sums are divided, not per-step shares averaged: a rare long stall counts with its
    length. ``None`` when no time was measured at all.
    """
    total = math.fsum(totals)
    return math.fsum(parts) / total if total > 0 else None


def accelerator_utilization(
    steps: Sequence[Mapping[str, Any]], emulated_step_seconds: float
) -> float | None:
    """Return the share of the time in which the accelerators would have computed.

    The time to compute is that of all steps but the first, which has nothing to be
    fetched in the background; the rest of the time they waited for data or for each
    other. MLPerf Storage asks for 0.90 with ResNet-50.

    Of every step of a run of ``task="load"``, warm-up included; None with fewer than
    two, or nothing emulated.

    References
    ----------
    https://github.com/mlcommons/storage/blob/main/Submission_guidelines.md
    """
    counted = steps[1:]
    total = math.fsum(step["step_time_seconds"] for step in counted)
    if total <= 0 or emulated_step_seconds <= 0:
        return None
    return len(counted) * emulated_step_seconds / total
