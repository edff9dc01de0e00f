"""Numbers in lines that programs print."""

from __future__ import annotations

NUMBER = (
    r"(?:[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
    r"(?![\w.]|,\d)|(?<!\w)[-+]?(?i:nan|inf(?:inity)?)(?!\w))"
)
"""Pattern of a number without a unit: ``0.5``, ``1e-3``, ``12,345.6``, ``nan``."""


def number(text: str) -> float:
    """Return the number that `NUMBER` matches."""
    return float(text.replace(",", ""))
