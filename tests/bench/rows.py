"""How the benchmarks say a value: beside its limit, or as a median with its range."""

from __future__ import annotations

import statistics as stdlib_statistics
from collections.abc import Sequence
from typing import Any

from nbkit import statistics

Row = dict[str, Any]


def row(name: str, value: float, unit: str, limit: float, conditions: str) -> Row:
    """Return a row whose value may be at most the limit."""
    return {
        "name": name,
        "value": round(value, 4),
        "unit": unit,
        "limit": limit,
        "ok": value <= limit,
        "conditions": conditions,
    }


def ratio_row(
    name: str, ours: list[float], theirs: list[float], limit: float, conditions: str
) -> Row:
    """Return a row whose interval has to lie above the limit; else it is open.

    What is open counts as over.
    """
    ratio = statistics.ratio(ours, theirs)
    low, high = ratio.ci_low, ratio.ci_high
    assert low is not None
    assert high is not None
    ok = True if low > limit else False if high < limit else None
    said = "" if ok is not None else "; not resolved"
    interval = f"95 % interval {low:.3f} to {high:.3f}{said}"
    return {
        **row(name, ratio.estimate, "ratio", limit, conditions + interval),
        "ok": ok,
    }


def within(rows: Sequence[Row]) -> bool:
    """Return whether every row is: one that does not resolve its limit is not."""
    return all(one["ok"] for one in rows)


def spread(values: Sequence[float]) -> str:
    """Return median and range as words."""
    middle = stdlib_statistics.median(values)
    texts = [
        f"{value:.0f}" if abs(value) >= 100 else f"{value:.2f}"
        for value in (middle, min(values), max(values))
    ]
    return "{} ({}..{})".format(*texts)
