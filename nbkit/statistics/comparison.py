"""Comparison of two sets of runs: ratio, interval, verdict.

How that fares was simulated: 1,000 studies in each case, whose arms differ by 1, 1.01,
1.05 and 1.5 times. In per cent: the mean width of the 95 % interval (upper less lower
end, over the true ratio), the lowest coverage of the four, how often one arm measured
twice got a verdict, and how often an arm that is 5 % faster was called faster.

::

    noise of a run        runs     width  coverage     false     found
    normal, 3 %              5       8.8      95.0       0.3      26.6
    normal, 3 %             10       5.6      94.6       0.3      51.3
    Student t(3), 2 %        5       9.4      95.2       0.0      28.0
    Student t(3), 2 %       10       6.0      95.3       0.0      53.8
    2 %, one in ten slow     5      15.4      97.6       0.1      20.7
    2 %, one in ten slow    10      10.0      97.5       0.0      33.3
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from nbkit.statistics.intervals import bootstrap_interval, welch_interval
from nbkit.statistics.summary import require_positive
from nbkit.statistics.wording import ci_text

Verdict: TypeAlias = Literal[
    "faster", "slower", "no difference shown", "not enough runs", "withheld"
]

PRACTICAL_MARGIN = 0.02
"""Differences below 2 % get no verdict: 2 % is the run-to-run variation that the
Dell EMC architecture guide (2018) reports for the same configuration."""

MINIMUM_RUNS = 5
"""Process starts per arm below which no verdict is given. With four, the t quantile
is already 3.2 and one disturbed run decides the answer."""

_ROUNDING = 1e-9
"""Of logarithms: runs that are all equal have an interval without width."""


@dataclass(frozen=True)
class Ratio:
    """Ratio of arm A to arm B, with confidence interval and verdict."""

    estimate: float
    """Median of A's runs divided by the median of B's runs."""
    ci_low: float | None
    """Lower end of the Welch t interval; ``None`` with one run in an arm."""
    ci_high: float | None
    """Upper end of the Welch t interval; ``None`` with one run in an arm."""
    verdict: Verdict
    n_a: int
    n_b: int
    confidence: float
    margin: float
    sentence: str
    """The result in words, for a report."""
    conclusion: str
    """The last part of the sentence: the verdict and its reason."""
    a_runs: tuple[float, ...] = field(repr=False)
    """One value per run of arm A."""
    b_runs: tuple[float, ...] = field(repr=False)
    """One value per run of arm B."""
    seed: int = field(repr=False)
    """Seed of the bootstrap."""
    comparisons: int = 1
    """How many comparisons share the verdict's error rate: see `holm`."""

    @property
    def verdict_confidence(self) -> float:
        """Confidence level of the interval that decides the verdict; see `holm`."""
        return _shared(self.confidence, self.comparisons)

    @property
    def _verdict_interval(self) -> tuple[float, float] | None:
        return welch_interval(self.a_runs, self.b_runs, self.verdict_confidence)

    @property
    def is_settled(self) -> bool:
        """Whether the interval is entirely beyond or entirely within the margin.

        Otherwise, more runs may still show or exclude a difference: see
        `nbkit.statistics.runs_needed`. Always False with fewer than `MINIMUM_RUNS` runs
        in an arm, if the verdict is ``withheld``, or if `is_noise`.
        """
        interval = self._verdict_interval
        if interval is None or self.verdict == "withheld":
            return False
        if min(self.n_a, self.n_b) < MINIMUM_RUNS:
            return False
        margin = math.log1p(self.margin)
        low, high = map(math.log, interval)
        is_beyond = low > margin or high < -margin
        return (is_beyond and not self.is_noise) or (low > -margin and high < margin)

    @property
    def is_noise(self) -> bool:
        """Whether the interval is beyond the margin, but not beyond the noise floor."""
        interval = self._verdict_interval
        if interval is None:
            return False
        beyond = max(interval[0], 1 / interval[1]) > 1 + self.margin
        return beyond and self.verdict == "no difference shown"

    @property
    def bootstrap_low(self) -> float | None:
        """Lower end of the bootstrap interval of the estimate, a cross-check."""
        return self._bootstrap[0] if self._bootstrap else None

    @property
    def bootstrap_high(self) -> float | None:
        """Upper end of the bootstrap interval of the estimate, a cross-check."""
        return self._bootstrap[1] if self._bootstrap else None

    @cached_property
    def _bootstrap(self) -> tuple[float, float] | None:
        # Computed when it is asked for: it costs a hundred times what the rest does.
        return bootstrap_interval(self.a_runs, self.b_runs, self.confidence, self.seed)


@dataclass(frozen=True)
class NoiseFloor:
    """Result of an A/A control: one configuration, measured as two arms."""

    ratio: Ratio
    """Second measurement divided by the first."""
    noise_floor: float | None
    """Largest difference expected by chance at the ratio's confidence, or the
    difference of the control if that is larger; 0.013 is 1.3 %. ``None`` with one run
    in an arm."""
    shows_difference: bool
    """Whether the control shows a difference beyond the margin."""
    sentence: str
    """The result in words, for a report."""

    @property
    def in_brief(self) -> str:
        """The difference of the control in a short sentence."""
        return f"A/A control differs by {self.difference}."

    @property
    def difference(self) -> str:
        """The difference of the control, such as ``1.3%``."""
        return f"{abs(self.ratio.estimate - 1) * 100:,.1f}%"

    def covers(self, other: Ratio) -> bool:
        """Return whether the control differs by at least as much as another ratio."""
        return abs(math.log(other.estimate)) <= abs(math.log(self.ratio.estimate))


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
    noise_floor: NoiseFloor | None = None,
    comparisons: int = 1,
    minimum_runs: int = MINIMUM_RUNS,
) -> Ratio:
    """Compare two arms by one value per run.

    Parameters
    ----------
    a_runs, b_runs
        One value per run, such as its images per second. Runs are separate
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
        Names of the arms in the sentence.
    noise_floor
        Noise floor of the study's A/A control. If the control shows a difference, the
        verdict is ``withheld``. A difference within the noise floor gets no verdict.
    comparisons
        How many comparisons share the verdict's error rate; see `holm`. The reported
        interval is not corrected.
    minimum_runs
        Runs per arm that a verdict needs.

    Returns
    -------
    Ratio
        The interval is computed with Welch's t from the logarithms of the runs, which
        is valid for arms with different variances. The bootstrap resamples runs and
        takes the ratio of medians; it is a cross-check and not used for the verdict. If
        the ratio of medians is outside the interval of the ratio of means, the runs of
        an arm may form groups, such as two clock rates of a GPU: the verdict is
        ``withheld``.

    Raises
    ------
    NotEnoughDataError
        If an arm is empty or a value is not a positive finite number.
    """
    for name, runs in ((a_name, a_runs), (b_name, b_runs)):
        require_positive(f"runs of {name}", runs)
    interval = welch_interval(a_runs, b_runs, confidence)
    estimate = statistics.median(a_runs) / statistics.median(b_runs)
    shared = interval
    if comparisons > 1:
        level = _shared(confidence, comparisons)
        shared = welch_interval(a_runs, b_runs, level)
    sizes = len(a_runs), len(b_runs)
    if min(sizes) < minimum_runs:
        verdict, is_undone = "not enough runs", False
    else:
        verdict = _verdict(shared, margin, higher_is_faster)
        is_undone = verdict != _verdict(interval, margin, higher_is_faster)
    caveat = _caveat(verdict, estimate, interval, noise_floor)
    if caveat:
        verdict = "withheld"
    elif verdict in ("faster", "slower") and _is_noise(interval, noise_floor):
        verdict = "no difference shown"
    conclusion = caveat or _verdict_in_words(
        verdict, a_name, b_name, margin, noise_floor, minimum_runs
    )
    if is_undone and not caveat:
        end = f" in {comparisons} comparisons (Holm's correction)."
        conclusion = conclusion.removesuffix(".") + end
    shown = f"{_runs_text(*sizes)}, no interval"
    if interval is not None:
        shown = f"{ci_text(*interval, confidence)}, {_runs_text(*sizes)}"
    return Ratio(
        estimate=estimate,
        ci_low=interval[0] if interval else None,
        ci_high=interval[1] if interval else None,
        verdict=verdict,
        n_a=len(a_runs),
        n_b=len(b_runs),
        confidence=confidence,
        margin=margin,
        sentence=f"{a_name} / {b_name} = {estimate:.3f} ({shown}): {conclusion}",
        conclusion=conclusion,
        a_runs=tuple(a_runs),
        b_runs=tuple(b_runs),
        seed=seed,
        comparisons=comparisons,
    )


def holm(compare: Sequence[Callable[..., Ratio]]) -> list[Ratio]:
    """Return ratios with verdicts corrected by Holm's step-down procedure.

    The probability of any false verdict among them is that of a single comparison. For
    ``k`` ratios, the strongest difference requires a confidence of ``1 - 0.05 / k``,
    the next ``1 - 0.05 / (k - 1)``, and so on.

    Parameters
    ----------
    compare
        For each comparison of a study, `ratio` with all arguments but ``comparisons``.

    References
    ----------
    S. Holm, Scandinavian Journal of Statistics 6 (1979),
    https://www.jstor.org/stable/4615733
    """

    def made(comparisons: int) -> list[Ratio]:
        return [ratio_of(comparisons=comparisons) for ratio_of in compare]

    return made(comparisons_at_once(made))


def comparisons_at_once(made: Callable[[int], Sequence[Ratio]]) -> int:
    """Return the number of ``comparisons`` for which to correct verdicts: see `holm`.

    `made` returns every `ratio` of a report for a number of comparisons. The A/A
    control gets no verdict and is not one of them.
    """
    count = max(len(made(1)), 1)
    while True:
        ratios = made(count)
        decided = sum(item.verdict in ("faster", "slower") for item in ratios)
        undecided = max(len(ratios) - decided, 1)
        if undecided >= count:
            return count
        count = undecided


def noise_floor(
    first_runs: Sequence[float],
    second_runs: Sequence[float],
    *,
    margin: float = PRACTICAL_MARGIN,
    confidence: float = 0.95,
    name: str = "",
) -> NoiseFloor:
    """Return the noise floor of one configuration measured twice (an A/A control).

    Parameters
    ----------
    first_runs, second_runs
        One value per run, as for `ratio`; the runs of both are interleaved with each
        other and with the other runs of the study.
    margin
        Practical margin, as for `ratio`. A control whose whole interval is beyond it
        shows a difference, so something other than the configuration changed.
    confidence
        Confidence level of the interval and of the noise floor.
    name
        Name of the configuration in the sentence.

    Returns
    -------
    NoiseFloor
        The noise floor is the larger of the *critical difference*, the half-width of
        the interval (``exp(t * standard error) - 1``), and the difference of the
        control itself. At 95 % confidence, two equal arms exceed the critical
        difference in at most 1 of 20 cases. Both differences are those of means of
        logarithms, and apply to arms with as many runs as the control.

    Raises
    ------
    NotEnoughDataError
        If an arm is empty or a value is not a positive finite number.

    References
    ----------
    ISO 5725-6:1994, 4.2 (critical difference of two groups of measurements within one
    laboratory), https://www.iso.org/standard/11837.html; with the standard deviation
    estimated from these runs, so Student's t replaces its 1.96.
    """
    control = ratio(second_runs, first_runs, margin=margin, confidence=confidence)
    floor = None
    shows_difference = False
    if control.ci_low is not None and control.ci_high is not None:
        low, high = math.log(control.ci_low), math.log(control.ci_high)
        half, centre = (high - low) / 2, (high + low) / 2
        floor = math.expm1(max(half, abs(centre)))
        shows_difference = not (
            control.ci_low <= 1 + margin and control.ci_high >= 1 / (1 + margin)
        )
    return NoiseFloor(
        ratio=control,
        noise_floor=floor,
        shows_difference=shows_difference,
        sentence=_control_sentence(control, floor, shows_difference, name),
    )


def _shared(confidence: float, comparisons: int) -> float:
    return 1 - (1 - confidence) / comparisons


def _verdict(
    interval: tuple[float, float] | None, margin: float, higher_is_faster: bool
) -> Verdict:
    if interval is None:
        return "not enough runs"
    low, high = interval
    if not higher_is_faster:
        low, high = 1 / high, 1 / low
    if low > 1 + margin:
        return "faster"
    if high < 1 / (1 + margin):
        return "slower"
    return "no difference shown"


def _caveat(
    verdict: Verdict,
    estimate: float,
    interval: tuple[float, float] | None,
    noise_floor: NoiseFloor | None,
) -> str:
    """Return why the verdict on these runs is withheld; empty if it stands."""
    if interval is None or verdict == "not enough runs":
        return ""
    if noise_floor is not None and noise_floor.shows_difference:
        return "verdict withheld because the A/A control also shows a difference."
    low, high = interval[0] / (1 + _ROUNDING), interval[1] * (1 + _ROUNDING)
    is_outside = not low <= estimate <= high
    if is_outside and verdict != "no difference shown":
        return (
            "verdict withheld because the ratio of medians is outside the CI of the "
            "ratio of means: the runs of an arm may form groups, such as two clock "
            "rates. Check each run."
        )
    return ""


def _is_noise(
    interval: tuple[float, float] | None, noise_floor: NoiseFloor | None
) -> bool:
    """Return whether the same configuration twice may differ as much."""
    if interval is None or noise_floor is None or noise_floor.noise_floor is None:
        return False
    centre = (math.log(interval[0]) + math.log(interval[1])) / 2
    return abs(centre) <= math.log1p(noise_floor.noise_floor)


def _verdict_in_words(
    verdict: Verdict,
    a_name: str,
    b_name: str,
    margin: float,
    noise_floor: NoiseFloor | None,
    minimum_runs: int,
) -> str:
    if verdict == "not enough runs":
        return f"not enough runs for a verdict ({minimum_runs} per arm needed)."
    if verdict == "no difference shown":
        floor = noise_floor.noise_floor if noise_floor else None
        if floor is not None and floor > margin:
            return f"no difference beyond the noise floor of {floor * 100:.1f}%."
        return f"no difference beyond the practical margin of {margin * 100:g}%."
    return f"{a_name} is {verdict} than {b_name}."


def _control_sentence(
    control: Ratio, floor: float | None, shows_difference: bool, name: str
) -> str:
    runs = _runs_text(control.n_b, control.n_a)
    start = f"A/A control{f' ({name})' if name else ''}: "
    start += f"{abs(control.estimate - 1) * 100:.1f}% difference"
    if floor is None or control.ci_low is None or control.ci_high is None:
        return f"{start} ({runs}, no interval), noise floor unknown."
    ends = ci_text(
        control.ci_low,
        control.ci_high,
        control.confidence,
        lambda end: f"{(end - 1) * 100:+.1f}",
    )
    start += f" ({ends}, {runs})"
    if shows_difference:
        return (
            f"{start}, beyond the practical margin of {control.margin * 100:g}%: "
            "verdicts of this study are not reliable. Check for other load, "
            "throttling and runs that were not interleaved, then measure again."
        )
    if floor > 1:
        smallest = f"{1 + floor:,.3g}x"
        return f"{start}, noise floor above 100%: limit of detection {smallest}."
    return f"{start}, noise floor {floor * 100:.1f}%."


def _runs_text(first: int, second: int) -> str:
    return f"n={first}" if first == second else f"n={first} and {second}"


def noise_floors_below(
    runs: Sequence[float], base_runs: Sequence[float], *, higher_is_better: bool
) -> float | None:
    """Return by how many noise floors an arm is worse than its base; 0 if it is not.

    The noise floor is the critical difference (see `noise_floor`) for the number and
    scatter of these runs. With two runs per arm, equal arms are five noise floors apart
    in 1 of 2,500 cases. ``None`` with one run in an arm, or without scatter.
    """
    interval = welch_interval(runs, base_runs, 0.95)
    if interval is None or interval[0] == interval[1]:
        return None
    low, high = map(math.log, interval)
    worse = -(low + high) / 2 if higher_is_better else (low + high) / 2
    return max(worse / ((high - low) / 2), 0.0)


def efficiency(
    images_per_second: float,
    world_size: int,
    base_images_per_second: float,
    base_world_size: int = 1,
) -> float:
    """Return the rate per device divided by that of a smaller number of devices."""
    return (images_per_second / world_size) / (base_images_per_second / base_world_size)
