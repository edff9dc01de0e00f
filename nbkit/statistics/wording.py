"""Wording of intervals, sizes and durations."""

from __future__ import annotations

from collections.abc import Callable

from nbkit.plural import plural

_WIDEST = 100.0


def interval_in_words(
    low: float, high: float, shown: Callable[[float], str] | None = None
) -> str:
    """Return an interval such as ``[0.981, 1.043]``.

    If the ends differ by more than a factor of 100, the text is ``wider than
    100-fold``: the interval of two very different runs can span millions.
    """
    if high > _WIDEST * low:
        return f"wider than {_WIDEST:g}-fold"
    text = shown or "{:.3f}".format
    return f"[{text(low)}, {text(high)}]"


def ci_text(
    low: float,
    high: float,
    confidence: float = 0.95,
    shown: Callable[[float], str] | None = None,
) -> str:
    """Return a confidence interval for a sentence: ``95% CI [0.981, 1.043]``."""
    return f"{confidence * 100:g}% CI {interval_in_words(low, high, shown)}"


def size_in_words(size_bytes: float) -> str:
    """Return a size in binary units: ``64 MiB`` or ``20.5 GiB``."""
    for unit in ("B", "KiB", "MiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} GiB"


def duration_in_words(seconds: float) -> str:
    """Return a duration: ``40 seconds``, ``12 minutes`` or ``3.5 hours``."""
    if seconds < 90:
        return plural(round(seconds), "second")
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"
