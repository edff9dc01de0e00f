"""Comparing two sets of runs, and saying only what they show."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from nbkit.statistics.student_t import student_t_quantile
from nbkit.statistics.summary import require_positive

Verdict: TypeAlias = Literal[
    "faster", "slower", "no difference shown", "not enough runs"
]

PRACTICAL_MARGIN = 0.02
"""Differences below 2 % are not worth a verdict: the run-to-run variation that the
Dell EMC architecture guide (2018) reports for the same configuration."""

MINIMUM_RUNS = 5
"""Process starts per arm below which no verdict is given. With four, the t quantile
is already 3.2 and one disturbed run decides the answer."""

_BOOTSTRAP_RESAMPLES = 2_000
"""Enough that the ends of a 95 % interval move by well under the practical margin
from one seed to another."""


@dataclass(frozen=True)
class Ratio:
    """How arm A compares with arm B, and what may be said about it."""

    estimate: float
    """Median of A's run medians over median of B's."""
    ci_low: float | None
    """Lower end of the Welch t interval; ``None`` with one run in an arm."""
    ci_high: float | None
    """Upper end of the Welch t interval; ``None`` with one run in an arm."""
    bootstrap_low: float | None
    """Lower end of the bootstrap interval of the estimate, a cross-check."""
    bootstrap_high: float | None
    """Upper end of the bootstrap interval of the estimate, a cross-check."""
    verdict: Verdict
    n_a: int
    n_b: int
    confidence: float
    margin: float
    sentence: str
    """The result in words, for a report."""


def ratio(
    a_runs: Sequence[float],
    b_runs: Sequence[float],
    *,
    margin: float = PRACTICAL_MARGIN,
    confidence: float = 0.95,
    seed: int = 0,
    higher_is_faster: bool = True,
    a_name: str = "A",
    b_name: str = "B",
) -> Ratio:
    """Compare two arms by their run medians.

    Parameters
    ----------
    a_runs, b_runs
        One number a run: its median over the measured steps. Runs are separate
        process starts, interleaved on the same machine.
    margin
        Practical margin: a verdict needs the whole interval beyond ``1 + margin``,
        or below ``1 / (1 + margin)``, so that swapping the arms mirrors the verdict.
    confidence
        Confidence level of both intervals.
    seed
        Seed of the bootstrap, so that a report is reproducible.
    higher_is_faster
        True for rates (images per second), False for durations.
    a_name, b_name
        What the arms are called in the sentence.

    Returns
    -------
    Ratio
        The interval is Welch's t on the logarithms of the run medians, which holds
        when the two arms scatter differently. The bootstrap resamples runs and takes
        the ratio of medians; it is shown to be compared, not used for the verdict.

    Raises
    ------
    NotEnoughDataError
        If an arm is empty or a value is not a positive finite number.

    References
    ----------
    B. L. Welch, Biometrika 34 (1947), https://doi.org/10.1093/biomet/34.1-2.28
    """
    for name, runs in ((a_name, a_runs), (b_name, b_runs)):
        require_positive(f"run medians of {name}", runs)
    interval = _welch_interval(a_runs, b_runs, confidence)
    check = _bootstrap_interval(a_runs, b_runs, confidence, seed)
    estimate = statistics.median(a_runs) / statistics.median(b_runs)
    verdict = _verdict(interval, len(a_runs), len(b_runs), margin, higher_is_faster)
    return Ratio(
        estimate=estimate,
        ci_low=interval[0] if interval else None,
        ci_high=interval[1] if interval else None,
        bootstrap_low=check[0] if check else None,
        bootstrap_high=check[1] if check else None,
        verdict=verdict,
        n_a=len(a_runs),
        n_b=len(b_runs),
        confidence=confidence,
        margin=margin,
        sentence=_sentence(
            f"{a_name} / {b_name} = {estimate:.3f}",
            interval,
            f"{len(a_runs)} and {len(b_runs)} runs",
            confidence,
            _verdict_in_words(verdict, a_name, b_name, margin),
        ),
    )


def _verdict(
    interval: tuple[float, float] | None,
    n_a: int,
    n_b: int,
    margin: float,
    higher_is_faster: bool,
) -> Verdict:
    if interval is None or min(n_a, n_b) < MINIMUM_RUNS:
        return "not enough runs"
    low, high = interval
    if not higher_is_faster:
        low, high = 1 / high, 1 / low
    if low > 1 + margin:
        return "faster"
    if high < 1 / (1 + margin):
        return "slower"
    return "no difference shown"


def _verdict_in_words(verdict: Verdict, a_name: str, b_name: str, margin: float) -> str:
    if verdict == "not enough runs":
        return f"not enough runs for a verdict ({MINIMUM_RUNS} an arm are needed)."
    if verdict == "no difference shown":
        return f"no difference beyond the practical margin of {margin * 100:g} % shown."
    return f"{a_name} is {verdict} than {b_name}."


def _sentence(
    start: str,
    interval: tuple[float, float] | None,
    runs: str,
    confidence: float,
    end: str,
) -> str:
    if interval is None:
        return f"{start} ({runs}, no interval): {end}"
    low, high = interval
    level = f"{confidence * 100:g} % interval"
    return f"{start} ({level} {low:.3f} to {high:.3f}, {runs}): {end}"


def _welch_interval(
    a_runs: Sequence[float], b_runs: Sequence[float], confidence: float
) -> tuple[float, float] | None:
    if min(len(a_runs), len(b_runs)) < 2:
        return None
    a_logs = [math.log(value) for value in a_runs]
    b_logs = [math.log(value) for value in b_runs]
    centre = statistics.fmean(a_logs) - statistics.fmean(b_logs)
    a_error = statistics.variance(a_logs) / len(a_logs)
    b_error = statistics.variance(b_logs) / len(b_logs)
    error = a_error + b_error
    if error == 0:
        # Counted quantities (bytes) can be the same in every run: the ratio is exact,
        # and the degrees of freedom below would be 0 / 0.
        return math.exp(centre), math.exp(centre)
    # Welch-Satterthwaite, in a form that cannot underflow for tiny variances.
    freedom = 1 / (
        (a_error / error) ** 2 / (len(a_logs) - 1)
        + (b_error / error) ** 2 / (len(b_logs) - 1)
    )
    half = student_t_quantile(0.5 + confidence / 2, freedom) * math.sqrt(error)
    return math.exp(centre - half), math.exp(centre + half)


def _bootstrap_interval(
    a_runs: Sequence[float], b_runs: Sequence[float], confidence: float, seed: int
) -> tuple[float, float] | None:
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
