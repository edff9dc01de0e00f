"""Steps of a run: measured window, rates and shares."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

BURST_MARGIN = 0.05
"""By how much the median step may differ from the rate of its run."""


def measured_steps(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the measured steps: those after the warm-up; may be empty.

    Recorded steps are complete batches: loaders drop the incomplete last batch of an
    epoch and count the dropped images.
    """
    return [row for row in rows if row["kind"] == "step" and not row["warmup"]]


def images_per_second(steps: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the rate of a run: images / time of these steps.

    A step begins at the end of the previous one, so its time includes data wait and
    stalls. ``None`` without a step.
    """
    return share(
        [step["images"] for step in steps],
        [step["step_time_seconds"] for step in steps],
    )


def step_images_per_second(steps: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the rate of each step: its images / its whole duration.

    Their median is not the rate of the run: loader processes deliver in bursts, so most
    steps find their batch ready.
    """
    return [step["images"] / step["step_time_seconds"] for step in steps]


def bursts_in_words(
    rate: float | None, median_step: float | None, longest_step_seconds: float | None
) -> str | None:
    """Return a note on bursts; None if the median step matches the run's rate."""
    if not rate or median_step is None or longest_step_seconds is None:
        return None
    if abs(median_step / rate - 1) <= BURST_MARGIN:
        return None
    return (
        f"steps come in bursts: {median_step:,.4g} images/s in the median step, "
        f"but {rate:,.4g} over all measured steps; the longest step took "
        f"{longest_step_seconds:,.3g} s"
    )


def share(parts: Sequence[float], totals: Sequence[float]) -> float | None:
    """Return the part of the total time spent in something, between 0 and 1.

    It is the ratio of the sums, not the mean of per-step shares, so a rare long stall
    counts fully. ``None`` if no time was measured.
    """
    total = math.fsum(totals)
    return math.fsum(parts) / total if total > 0 else None


def accelerator_utilization(
    steps: Sequence[Mapping[str, Any]], emulated_step_seconds: float
) -> float | None:
    """Return the share of time in which emulated accelerators compute.

    The first step is excluded, because its batch cannot be prefetched; all other steps,
    including warm-up, count. In the rest of the time, accelerators wait for data or for
    each other. MLPerf Storage requires 0.90 with ResNet-50.

    None with fewer than two steps, or if the run (``task="load"``) emulates no GPU.

    References
    ----------
    https://github.com/mlcommons/storage/blob/main/Submission_guidelines.md
    """
    counted = steps[1:]
    total = math.fsum(step["step_time_seconds"] for step in counted)
    if total <= 0 or emulated_step_seconds <= 0:
        return None
    return len(counted) * emulated_step_seconds / total
