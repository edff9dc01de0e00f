"""Intervals of the ratio of two arms: Welch's t, and the bootstrap as a check."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence

from nbkit.statistics.student_t import student_t_quantile

_BOOTSTRAP_RESAMPLES = 2_000
"""Enough that the ends of a 95 % interval move by well under the practical margin
from one seed to another."""


def welch_interval(
    a_runs: Sequence[float], b_runs: Sequence[float], confidence: float
) -> tuple[float, float] | None:
    """Return Welch's t interval of A / B, computed on logarithms.

    ``None`` with one run in an arm.

    References
    ----------
    B. L. Welch, Biometrika 34 (1947), https://doi.org/10.1093/biomet/34.1-2.28
    """
    if min(len(a_runs), len(b_runs)) < 2:
        return None
    (a_mean, a_squares), (b_mean, b_squares) = (
        of_logarithms(a_runs),
        of_logarithms(b_runs),
    )
    centre = a_mean - b_mean
    n_a, n_b = len(a_runs), len(b_runs)
    a_error, b_error = a_squares / (n_a - 1) / n_a, b_squares / (n_b - 1) / n_b
    error = a_error + b_error
    if error == 0:
        # Counted quantities (bytes) can be the same in every run: the ratio is exact,
        # and the degrees of freedom below would be 0 / 0.
        return math.exp(centre), math.exp(centre)
    # Welch-Satterthwaite, in a form that cannot underflow for tiny variances.
    freedom = 1 / (
        (a_error / error) ** 2 / (n_a - 1) + (b_error / error) ** 2 / (n_b - 1)
    )
    half = student_t_quantile(0.5 + confidence / 2, freedom) * math.sqrt(error)
    half = min(half, 600.0)  # exp() of more overflows
    return math.exp(centre - half), math.exp(centre + half)


def bootstrap_interval(
    a_runs: Sequence[float], b_runs: Sequence[float], confidence: float, seed: int
) -> tuple[float, float] | None:
    """Return the percentile interval of the ratio of medians, by resampling the runs.

    ``None`` with one run in an arm.
    """
    if min(len(a_runs), len(b_runs)) < 2:
        return None
    generator = random.Random(seed)
    ratios = sorted(
        statistics.median(generator.choices(a_runs, k=len(a_runs)))
        / statistics.median(generator.choices(b_runs, k=len(b_runs)))
        for _ in range(_BOOTSTRAP_RESAMPLES)
    )
    tail = round((1 - confidence) / 2 * _BOOTSTRAP_RESAMPLES)
    return ratios[tail], ratios[-1 - tail]


def of_logarithms(runs: Sequence[float]) -> tuple[float, float]:
    """Return the mean of the logarithms, and the sum of squares around it."""
    # From the first on, so that equal runs have a sum of exactly 0.
    first = math.log(runs[0])
    steps = [math.log(value) - first for value in runs]
    mean = math.fsum(steps) / len(steps)
    return first + mean, math.fsum((step - mean) ** 2 for step in steps)
