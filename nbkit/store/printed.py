"""Numbers in lines that programs print."""

from __future__ import annotations

import re
from pathlib import Path

from nbkit.reading import read_end

NUMBER = (
    r"(?:[-+]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
    r"(?!\w|\.\w|[,:]\d)|(?<!\w)[-+]?(?i:nan|inf(?:inity)?)(?!\w))"
)
"""Pattern of a number without a unit: ``0.5``, ``1e-3``, ``12,345.6``, ``nan``."""

_WORD = r"[A-Za-z][\w./-]*"
_NAMED = re.compile(
    rf"(?<![\w./-])({_WORD}(?: {_WORD})?)['\"]?\s*[:=]\s*['\"]?({NUMBER})"
)
"""``loss: 0.5``, ``val loss=0.5``; quotes as in ``{'loss': '0.5'}`` of a `Trainer`."""
_LAST_LINES = 50
_LAST_BYTES = 1 << 16


def number(text: str) -> float:
    """Return the number that `NUMBER` matches."""
    return float(text.replace(",", ""))


def last_values(output: Path) -> dict[str, float]:
    """Return the last value of each ``name: value`` in the last 50 lines of a file."""
    try:
        data, _ = read_end(output, _LAST_BYTES)
    except OSError:
        return {}  # what printed has removed it
    lines = data.decode(errors="replace").splitlines()[-_LAST_LINES:]
    return {name: number(text) for name, text in _NAMED.findall("\n".join(lines))}
