"""What a slot has found, as a table for people."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from checks import Size, State

__all__ = ["exit_code", "line_of", "table"]

_WIDTH = 100
_STATE_WIDTH = max(map(len, State)) + 2
_NAME_WIDTH = 34


def line_of(row: dict[str, Any]) -> str:
    """Return one check as a line or more."""
    first = f"{row['state']:<{_STATE_WIDTH}}{row['name']:<{_NAME_WIDTH}}"
    said = row["found"].strip() or "–"
    if row["state"] == State.SHORT:
        said += f" [limit: {row['limit']}]"
    lines = textwrap.wrap(said, _WIDTH - len(first)) or [said]
    indent = "\n" + " " * len(first)
    return f"{first}{indent.join(lines)}"


def table(
    command: str, rows: Sequence[dict[str, Any]], size: Size, machine: dict[str, Any]
) -> str:
    """Return every check, how many passed, and what the numbers are good for."""
    counts = Counter(row["state"] for row in rows)
    names = Counter(gpu["name"] for gpu in machine["gpus"])
    gpus = ", ".join(f"{n} x {name}" if n > 1 else name for name, n in names.items())
    verdict = ", ".join(f"{counts[state]} {state}" for state in State)
    good_for = (
        "Full size: this is a result."
        if size.counts
        else f"{size.name.capitalize()} size: the paths were run; this is NO result. "
        "Only --size full is one."
    )
    return "\n".join(
        [
            "",
            f"{command}, {size.words}",
            f"{gpus}, driver {machine['driver']}, torch {machine['torch']}, CUDA "
            f"{machine['cuda']}, Python {machine['python']}",
            "-" * _WIDTH,
            *map(line_of, rows),
            "-" * _WIDTH,
            f"{verdict}. {good_for}",
        ]
    )


def exit_code(rows: Sequence[dict[str, Any]]) -> int:
    """Return 0 if every check passed that this machine can run, else 1."""
    fine = (State.PASSED, State.NOT_HERE)
    passed = any(row["state"] == State.PASSED for row in rows)
    return 0 if passed and all(row["state"] in fine for row in rows) else 1
