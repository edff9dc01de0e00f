"""The steps of one run: which of them count, and what they add up to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def measured_steps(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the steps that count: those after the warm-up, which may be none.

    A recorded step is never partial: loaders drop the remainder of an epoch and count
    what they dropped.

    Parameters
    ----------
    rows
        Rows of a run's ``metrics.jsonl``; other kinds of rows are ignored.
    """
    return [row for row in rows if row["kind"] == "step" and not row["warmup"]]


def step_images_per_second(steps: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the rate of each step: its images over its whole duration.

    The duration is the step's total, data wait included. The median of these is the
    run's images per second.
    """
    return [step["images"] / step["step_time_seconds"] for step in steps]


def share(parts: Sequence[float], totals: Sequence[float]) -> float | None:
    """Return the part of the total time spent in something, between 0 and 1.

    Sums are divided, not per-step shares averaged: a rare long stall counts with its
    length. ``None`` when no time was measured at all.
    """
    total = math.fsum(totals)
    return math.fsum(parts) / total if total > 0 else None
