"""Number of runs a verdict needs, estimated from the first runs of both arms.

The question is Spiegelhalter's: with the runs so far, how probable is it that the
study settles the matter once it has ``n`` runs an arm? Settled means that the interval
is wholly beyond the practical margin, which is a verdict, or wholly within it, which
says that there is no difference worth one.

Neither the difference nor the scatter is known from a handful of runs, and planning as
if they were gives too few. So both are averaged over what the first runs leave open
(predictive power, with priors that say nothing): after two runs an arm the scatter is
hardly known, and the answer is accordingly careful. Two runs that are equal by luck it
cannot see through, so that after so few it says to ask again.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from nbkit.statistics.comparison import (
    MINIMUM_RUNS,
    PRACTICAL_MARGIN,
    NoiseFloor,
    ratio,
)
from nbkit.statistics.intervals import of_logarithms
from nbkit.statistics.student_t import student_t_quantile
from nbkit.statistics.summary import require_positive
from nbkit.statistics.wording import duration_in_words

_CELLS = 24
"""Cells of each integral over a variance; with many more, the probability moves by less
than 0.002."""


@dataclass(frozen=True)
class RunsNeeded:
    """Number of runs needed for a verdict on two arms."""

    runs: int | None
    """Total runs per arm, including the existing ones; ``None`` if unknown or more than
    ``largest``."""
    more: int | None
    """Additional runs of both arms together; 0 if the verdict is settled."""
    seconds: float | None
    """Duration of the additional runs in sequence; ``None`` if unknown."""
    n_a: int
    n_b: int
    power: float
    confidence: float
    margin: float
    largest: int
    """Maximum number of runs per arm that was considered."""
    sentence: str
    """The result in words, for a report."""


def runs_needed(
    a_runs: Sequence[float],
    b_runs: Sequence[float],
    *,
    margin: float = PRACTICAL_MARGIN,
    power: float = 0.8,
    confidence: float = 0.95,
    largest: int = 100,
    seconds_per_run: float | None = None,
    noise_floor: NoiseFloor | None = None,
) -> RunsNeeded:
    """Return how many runs per arm are needed for a verdict on two arms.

    Parameters
    ----------
    a_runs, b_runs
        One value per finished run, as for `nbkit.statistics.ratio`.
    margin, confidence
        Practical margin and confidence level of the verdict.
    power
        Probability of a verdict with that many runs.
    largest
        Maximum number of runs per arm; a larger result is stated as "more than" it.
    seconds_per_run
        How long one run of either arm takes, in seconds.
    noise_floor
        As for `nbkit.statistics.ratio`. For a difference within the noise floor, the
        number is unknown, because it depends on the control.

    Returns
    -------
    RunsNeeded
        At least `MINIMUM_RUNS` per arm. Fix the number of runs in advance, at the
        latest after `MINIMUM_RUNS` per arm: checking after every run and stopping at
        the first verdict finds false differences more often than the confidence level
        allows.

    Raises
    ------
    NotEnoughDataError
        If an arm is empty or a value is not a positive finite number.

    Notes
    -----
    The logarithms of the runs are assumed to be normal with a common variance, which
    the first runs estimate with ``n_a + n_b - 2`` degrees of freedom. Final means
    include both the finished and the future runs.

    References
    ----------
    D. J. Spiegelhalter, L. S. Freedman and P. R. Blackburn, Monitoring clinical trials:
    conditional or predictive power?, Controlled Clinical Trials 7 (1986),
    https://doi.org/10.1016/0197-2456(86)90003-6
    """
    for name, values in (("A", a_runs), ("B", b_runs)):
        require_positive(f"runs of {name}", values)
    n_a, n_b = len(a_runs), len(b_runs)
    comparison = ratio(
        a_runs, b_runs, margin=margin, confidence=confidence, noise_floor=noise_floor
    )
    runs, more, start = None, None, ""
    if n_a + n_b < 3:
        start = (
            f"Runs needed for a verdict: at least {MINIMUM_RUNS} per arm; 1 run per "
            "arm has no measurable scatter"
        )
    elif comparison.verdict == "withheld":
        why = comparison.conclusion.rstrip(".")
        start = f"Runs needed for a verdict: unknown, {why}"
    elif comparison.is_settled:
        runs, more = max(n_a, n_b), 0
        start = f"{n_a} and {n_b} runs are enough"
    elif comparison.is_noise:
        start = (
            "More runs of the control are needed: the difference exceeds the "
            f"practical margin of {margin * 100:g}%, but not the noise floor"
        )
    else:
        outlook = _Outlook(a_runs, b_runs, math.log1p(margin), confidence)
        # With as many as there are it is not settled, whatever the outlook says: it
        # takes one variance for both arms, and a verdict does not.
        more_than = min(n_a, n_b) if min(n_a, n_b) >= MINIMUM_RUNS else 0
        fewest = max(n_a, n_b, MINIMUM_RUNS, more_than + 1)
        runs = _fewest(outlook, power, fewest, largest)
        if runs is None:
            start = (
                f"More than {largest} runs per arm are needed: the difference is close "
                f"to the practical margin of {margin * 100:g}%, or small relative to "
                f"a run-to-run scatter of {outlook.scatter * 100:.1f}%"
            )
        else:
            more = 2 * runs - n_a - n_b
            start = (
                f"{runs} runs per arm are needed for {power * 100:g}% power: {more} "
                "more in total"
            )
    seconds = (
        None if more is None or seconds_per_run is None else more * seconds_per_run
    )
    duration = f", about {duration_in_words(seconds)}" if seconds else ""
    caution = (
        f" (preliminary: {n_a} and {n_b} runs are few to estimate scatter; estimate "
        f"again with {MINIMUM_RUNS} per arm)"
        if runs is not None and more and n_a + n_b - 2 < _WELL_KNOWN
        else ""
    )
    return RunsNeeded(
        runs=runs,
        more=more,
        seconds=seconds,
        n_a=n_a,
        n_b=n_b,
        power=power,
        confidence=confidence,
        margin=margin,
        largest=largest,
        sentence=f"{start}{duration}{caution}.",
    )


_WELL_KNOWN = 6
"""Degrees of freedom below which the upper 95 % limit of a standard deviation is more
than 1.9 times its estimate."""


class _Outlook:
    """What the first runs leave open about the end of the study."""

    def __init__(
        self,
        a_runs: Sequence[float],
        b_runs: Sequence[float],
        margin: float,
        confidence: float,
    ) -> None:
        a_mean, a_squares = of_logarithms(a_runs)
        b_mean, b_squares = of_logarithms(b_runs)
        self.n_a, self.n_b = len(a_runs), len(b_runs)
        self._difference = a_mean - b_mean
        self._squares = a_squares + b_squares
        self._freedom = self.n_a + self.n_b - 2
        self._margin = margin
        self._confidence = confidence

    @property
    def scatter(self) -> float:
        """Standard deviation of a run, as a part of its value."""
        return math.sqrt(self._squares / self._freedom)

    def probability(self, runs: int) -> float:
        """Return how probable it is that this many runs an arm settle the matter."""
        new = 2 * runs - self.n_a - self.n_b
        freedom = self._freedom + new
        quantile = student_t_quantile(0.5 + self._confidence / 2, freedom)
        # Variance of the final difference, in units of one run's: the mean that the
        # first runs leave open, and the scatter of the future ones.
        spread = sum((runs - done) / (runs * done) for done in (self.n_a, self.n_b))
        settled = 0.0
        for weight, chi_squared in _chi_squared(self._freedom):
            variance = self._squares / chi_squared
            deviation = math.sqrt(variance * spread)
            for further_weight, further in _chi_squared(new) if new else [(1.0, 0.0)]:
                squares = self._squares + variance * further
                half = quantile * math.sqrt(2 * squares / (freedom * runs))
                settled += weight * further_weight * self._settled(half, deviation)
        return settled

    def _settled(self, half: float, deviation: float) -> float:
        """Return the probability of an interval of this half-width to be settled."""

        def below(value: float) -> float:
            distance = value - self._difference
            if deviation == 0:
                return float(distance > 0)
            return 0.5 * math.erfc(-distance / (deviation * math.sqrt(2)))

        reach = self._margin - half
        within = below(reach) - below(-reach) if reach > 0 else 0.0
        return 1 - below(self._margin + half) + below(-self._margin - half) + within


def _fewest(outlook: _Outlook, power: float, smallest: int, largest: int) -> int | None:
    """Return the fewest runs with the power; it grows with the runs."""
    if smallest > largest or outlook.probability(largest) < power:
        return None
    if outlook.probability(smallest) >= power:
        return smallest
    low, high = smallest, largest
    while high - low > 1:
        middle = (low + high) // 2
        if outlook.probability(middle) < power:
            low = middle
        else:
            high = middle
    return high


@functools.cache
def _chi_squared(freedom: int) -> list[tuple[float, float]]:
    """Return weights and places that integrate over a chi-squared distribution.

    Cells of equal width in the logarithm, in which its density is smooth and without
    a pole however few the degrees of freedom are.
    """
    spread = math.sqrt(2 / freedom)
    low = math.log(freedom) - 6 * spread - 8 / freedom
    high = math.log(freedom) + 5 * spread
    width = (high - low) / _CELLS
    places = [low + (cell + 0.5) * width for cell in range(_CELLS)]
    # 1 at the peak: without it all of them underflow for some 1,500 degrees of freedom.
    heights = [
        math.exp(0.5 * (freedom * (place - math.log(freedom) + 1) - math.exp(place)))
        for place in places
    ]
    total = math.fsum(heights)
    return [
        (height / total, math.exp(place))
        for height, place in zip(heights, places, strict=True)
    ]
