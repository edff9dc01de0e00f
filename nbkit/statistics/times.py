"""Times to an event that not every run reached.

A run that ends before the event has no time, and leaving it out would make the others
look typical. It is counted as later than every run that came to the event: a median or
quartile that would fall on it is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from nbkit.statistics.summary import require_positive, summarise

_FEWEST_OLYMPIC = 3


@dataclass(frozen=True)
class Times:
    """Times to an event over runs; None if too few runs reached it."""

    n: int
    """Number of runs, including those that did not reach the event."""
    reached: int
    """Number of runs that reached the event."""
    median: float | None
    q25: float | None
    """Lower quartile."""
    q75: float | None
    """Upper quartile."""
    fastest: float | None
    slowest: float | None
    """Slowest run; None if a run did not reach the event."""
    ci_low: float | None
    """Lower end of the interval; None with a single run, or if a run did not reach the
    event."""
    ci_high: float | None
    """Upper end of the interval."""
    olympic_mean: float | None
    """MLPerf's statistic, see `olympic_mean`."""
    confidence: float


def summarise_times(
    times: Sequence[float], not_reached: int = 0, *, confidence: float = 0.95
) -> Times:
    """Summarise times to an event.

    Parameters
    ----------
    times
        One value per run that reached the event; runs are separate process starts. If a
        value is zero, such as a number of complete epochs, there is no interval.
    not_reached
        Number of runs that ended without reaching it; they count as slower than all
        others.
    confidence
        Confidence level of the interval, which is that of
        `nbkit.statistics.summarise`.

    Raises
    ------
    NotEnoughDataError
        If there is no run at all, or a time is negative or not finite.
    """
    if any(times) or not (times or not_reached):
        require_positive("times", [time for time in times if time])
    ordered = [*sorted(times), *[math.inf] * not_reached]
    interval = None
    if not not_reached and all(times):
        summary = summarise(times, confidence=confidence)
        interval = summary.ci_low, summary.ci_high
    return Times(
        n=len(ordered),
        reached=len(times),
        median=_quantile(ordered, 0.5),
        q25=_quantile(ordered, 0.25),
        q75=_quantile(ordered, 0.75),
        fastest=_finite_or_none(ordered[0]),
        slowest=_finite_or_none(ordered[-1]),
        ci_low=interval[0] if interval else None,
        ci_high=interval[1] if interval else None,
        olympic_mean=olympic_mean(times, not_reached),
        confidence=confidence,
    )


def olympic_mean(times: Sequence[float], not_reached: int = 0) -> float | None:
    """Return the mean without the fastest and the slowest run, as in MLPerf.

    None with fewer than three runs, or if more than one run did not reach the event;
    one such run counts as the slowest. MLPerf requires five runs of ResNet-50.

    References
    ----------
    MLPerf training rules, section 7.1 (results),
    https://github.com/mlcommons/training_policies/blob/master/training_rules.adoc
    """
    if len(times) + not_reached < _FEWEST_OLYMPIC or not_reached > 1:
        return None
    ordered = [*sorted(times), *[math.inf] * not_reached]
    return fmean(ordered[1:-1])


def _quantile(ordered: Sequence[float], part: float) -> float | None:
    """Return a quantile by linear interpolation; None where it is not reached."""
    place = part * (len(ordered) - 1)
    below, share = math.floor(place), place - math.floor(place)
    low = ordered[below]
    if not share:
        return _finite_or_none(low)
    return _finite_or_none(low + share * (ordered[below + 1] - low))


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
