"""Text for a terminal: aligned columns, wrapped lines, no colours."""

from __future__ import annotations

import io
import json
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

from nbkit.visible import visible

NUMBER = ">"
"""Mark of a column that is aligned to the right."""


def aligned(rows: Sequence[Sequence[str]], marks: str = "") -> list[str]:
    """Return rows as lines with aligned columns."""
    rows = [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = marks.ljust(len(widths), "<")
    return [
        "  ".join(
            cell.rjust(width) if side == NUMBER else cell.ljust(width)
            for cell, width, side in zip(row, widths, sides, strict=True)
        ).rstrip()
        for row in rows
    ]


def wrapped(text: str, width: int, indent: str) -> list[str]:
    """Return a text in lines of at most `width` letters, each after the indent."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def write_in_any_encoding() -> None:
    """Let a Latin-1 terminal show ``?`` for a letter that it lacks, such as a dash.

    Otherwise the letter would be an error.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")


def write_lines(lines: Sequence[str]) -> None:
    """Write lines to standard output and flush it."""
    _write("".join(f"{visible(line, lines=True)}\n" for line in lines))


def write_json(values: Any) -> None:
    """Write JSON for other programs to standard output."""
    # Its strings are escaped already, so that other programs read them as they are.
    _write(f"{json.dumps(values, indent=1)}\n")


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def say(line: str) -> None:
    """Write a line about the progress to standard error."""
    sys.stderr.write(f"{visible(line, lines=True)}\n")
    sys.stderr.flush()
