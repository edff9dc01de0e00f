"""`Series`: a line of any length in about two thousand points, with its spikes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MOST_POINTS = 2000
"""More than a chart has pixels."""

Point = list[Any]
Value = tuple[float, float | None, float | None]
"""x, seconds since the run's first value, and the value; None is unknown."""


class Series:
    """A line whose resolution is halved whenever it grows too long.

    A point stands for one value, or for as many neighbours as the resolution says:
    their lowest and highest are kept, so that a spike stays visible. The last point is
    always the last value alone.

    Parameters
    ----------
    most_points
        At most so many are kept.
    """

    def __init__(self, most_points: int = MOST_POINTS) -> None:
        self._most = most_points
        self._values_per_point = 1
        self._points: list[_Merged] = []
        self._last: tuple[Any, ...] = ()
        self._changed_from = 0

    def add(self, x: float, y: float | None, seconds: float | None = None) -> None:
        """Add a value, and its time since the run's first; None is unknown."""
        self.add_band(x, y, y, y, seconds)

    def add_band(
        self,
        x: float,
        low: float | None,
        high: float | None,
        mean: float | None,
        seconds: float | None = None,
    ) -> None:
        """Add several values of one moment."""
        if not self._points or self._points[-1].count >= self._values_per_point:
            self._points.append(_Merged(x, seconds))
        self._points[-1].add(low, high, mean)
        self._last = x, seconds, low, high, mean
        self._changed_from = min(self._changed_from, len(self._points) - 1)
        if len(self._points) >= self._most:
            self._halve()

    def points(self) -> list[Point]:
        """Return all points: x of its first value, lowest, highest, mean, seconds.

        A point whose time is unknown has no seconds.
        """
        return self._points_from(0)

    def take_changes(self) -> dict[str, Any] | None:
        """Return the points that are new or changed since the last call."""
        begin = self._changed_from
        if begin >= len(self._points):
            return None
        self._changed_from = len(self._points)
        return {"from": begin, "points": self._points_from(begin)}

    def _points_from(self, begin: int) -> list[Point]:
        points = self._points[begin:]
        if points and points[-1].count > 1:
            x, seconds, *values = self._last
            points.append(_Merged(x, seconds))
            points[-1].add(*values)
        return [point.to_list() for point in points]

    def _halve(self) -> None:
        pairs = zip(self._points[::2], [*self._points[1::2], None], strict=False)
        self._points = [first.merged_with(second) for first, second in pairs]
        self._values_per_point *= 2
        self._changed_from = 0


def points_of(values: Sequence[Value], most_points: int = MOST_POINTS) -> list[Point]:
    """Return the points of a line that is complete, as `Series` has them."""
    width = 1
    while len(values) > width * (most_points - 1):
        width *= 2
    points = []
    for begin in range(0, len(values), width):
        part = values[begin : begin + width]
        known = [value for _, _, value in part if value is not None]
        point = _Merged(*part[0][:2])
        if known:
            point.known, point.total = len(known), sum(known)
            point.low, point.high = min(known), max(known)
        points.append(point.to_list())
        if len(part) > 1 and begin + width >= len(values):
            points += points_of(values[-1:])
    return points


class _Merged:
    """Neighbouring values as one point."""

    __slots__ = ("count", "high", "known", "low", "seconds", "total", "x")

    def __init__(self, x: float, seconds: float | None) -> None:
        self.x = x
        self.seconds = seconds
        self.count = 0
        self.known = 0
        self.total = 0.0
        self.low = float("inf")
        self.high = float("-inf")

    def add(self, low: float | None, high: float | None, mean: float | None) -> None:
        self.count += 1
        if low is None or high is None or mean is None:
            return
        self.known += 1
        self.total += mean
        self.low = min(self.low, low)
        self.high = max(self.high, high)

    def merged_with(self, other: _Merged | None) -> _Merged:
        if other is not None:
            self.count += other.count
            self.known += other.known
            self.total += other.total
            self.low = min(self.low, other.low)
            self.high = max(self.high, other.high)
        return self

    def to_list(self) -> Point:
        time = [] if self.seconds is None else [round(self.seconds, 2)]
        if not self.known:
            return [self.x, None, None, None, *time]
        values = self.low, self.high, self.total / self.known
        # Six figures: more than a chart can show, and a third of the bytes.
        return [self.x, *(float(f"{value:.6g}") for value in values), *time]
