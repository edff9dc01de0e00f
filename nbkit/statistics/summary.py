"""Summary of a set of numbers: n, median, spread and interval."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nbkit.errors import NotEnoughDataError
from nbkit.statistics.student_t import student_t_quantile

T = TypeVar("T")

_SMALLEST_GAP = math.log1p(0.02)
"""Smallest relative gap between two groups: the practical margin."""


@dataclass(frozen=True)
class Summary:
    """Summary of a set of measurements: median, spread, interval and n."""

    n: int
    """Number of values."""
    median: float
    q25: float
    """Lower quartile."""
    q75: float
    """Upper quartile."""
    mad: float
    """Median absolute deviation from the median (not scaled)."""
    minimum: float
    maximum: float
    ci_low: float | None
    """Lower end of the interval; ``None`` without one."""
    ci_high: float | None
    """Upper end of the interval; ``None`` without one."""
    confidence: float
    """Confidence level of the interval, such as 0.95."""

    @property
    def relative_scatter(self) -> float | None:
        """Relative standard deviation; ``None`` without an interval."""
        if self.ci_low is None or self.ci_high is None:
            return None
        quantile = student_t_quantile(0.5 + self.confidence / 2, self.n - 1)
        error = 0.5 * math.log(self.ci_high / self.ci_low) / quantile
        return error * math.sqrt(self.n)


def summarise(
    values: Sequence[float], *, confidence: float = 0.95, independent: bool = True
) -> Summary:
    """Summarise a set of measurements.

    Parameters
    ----------
    values
        One value per run; or, with ``independent=False``, one value per step of a
        single run.
    confidence
        Confidence level of the interval.
    independent
        Whether the values come from separate process starts. If not, such as for the
        steps of one process, there is no interval.

    Returns
    -------
    Summary
        The interval is Student's t on the logarithms (rates and times are positive,
        with multiplicative errors). It is ``None`` for a single value, for dependent
        values, and if a value is not positive.

    Raises
    ------
    NotEnoughDataError
        If there is no value, or a value is not a finite number.
    """
    require_finite("values", values)
    low, high = quartiles(values)
    interval = None
    if independent and len(values) > 1 and min(values) > 0:
        interval = _log_t_interval(values, confidence)
    return Summary(
        n=len(values),
        median=statistics.median(values),
        q25=low,
        q75=high,
        mad=median_absolute_deviation(values),
        minimum=min(values),
        maximum=max(values),
        ci_low=interval[0] if interval else None,
        ci_high=interval[1] if interval else None,
        confidence=confidence,
    )


def has_groups(values: Sequence[float]) -> bool:
    """Return whether runs form two groups, such as at two clock rates of a GPU.

    True if the largest gap between neighbours is more than ``1/2 + 1.75/n`` of the
    range of the logarithms, and more than the practical margin. For lognormal runs,
    this happens in at most 1 % of cases; for three runs or fewer, never.
    """
    logs = sorted(map(math.log, values))
    if len(logs) < 2:
        return False
    gap = max(after - before for before, after in itertools.pairwise(logs))
    least = (0.5 + 1.75 / len(logs)) * (logs[-1] - logs[0])
    return gap > max(least, _SMALLEST_GAP)


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Return lower and upper quartile, by linear interpolation (numpy's default)."""
    require_finite("values", values)
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def median_of(items: Iterable[T], value: Callable[[T], float | None]) -> float | None:
    """Return the median of the known values; None if all are unknown."""
    numbers = [number for item in items if (number := value(item)) is not None]
    return statistics.median(numbers) if numbers else None


def all_known(values: Iterable[T | None]) -> list[T]:
    """Return the values; empty if one of them is unknown."""
    every = list(values)
    known = [value for value in every if value is not None]
    return known if len(known) == len(every) else []


def median_absolute_deviation(values: Sequence[float]) -> float:
    """Return the median distance from the median, unscaled.

    Multiply by 1.4826 to compare it with the standard deviation of a normal
    distribution.
    """
    require_finite("values", values)
    centre = statistics.median(values)
    return statistics.median(abs(value - centre) for value in values)


def require_finite(name: str, values: Sequence[float]) -> None:
    """Raise `NotEnoughDataError` unless there are values, all of them finite."""
    if not values:
        message = f"{name}: 0 values (minimum 1). Measure at least one run first."
        raise NotEnoughDataError(message)
    for position, value in enumerate(values):
        if not math.isfinite(value):
            message = (
                f"{name}: value {position + 1} of {len(values)} is {value}, not a "
                "finite number. Omit runs without a result."
            )
            raise NotEnoughDataError(message)


def require_positive(name: str, values: Sequence[float]) -> None:
    """Raise `NotEnoughDataError` unless there are values, all finite and above 0."""
    require_finite(name, values)
    for position, value in enumerate(values):
        if value <= 0:
            message = (
                f"{name}: value {position + 1} of {len(values)} is {value}, but a "
                "ratio requires numbers above 0. Omit runs without a measurement."
            )
            raise NotEnoughDataError(message)


def _log_t_interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    logs = [math.log(value) for value in values]
    centre = statistics.fmean(logs)
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    half = student_t_quantile(0.5 + confidence / 2, len(logs) - 1) * error
    return math.exp(centre - half), math.exp(centre + half)
