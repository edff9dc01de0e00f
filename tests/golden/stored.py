"""The files in which a case is stored, and in what something differs from them."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from tests.golden.studies import FOLDER

__all__ = ["FILES", "WORDS", "Difference", "describe", "differences", "read", "write"]

WORDS = "words.txt"
FILES = ("result.json", "tables.csv", "charts.csv", WORDS)
"""JSON; rows of cells, a blank line after each block; sentences with their place."""
_RELATIVE = 1e-9
"""Versions of Python add up floating-point numbers in different ways."""
_ABSOLUTE = 1e-12
_MOST_SHOWN = 12
_NOTHING = "(nothing)"


class Difference(NamedTuple):
    """One value that is not as it is stored."""

    path: str
    stored: Any
    now: Any


def read(case: str) -> dict[str, Any]:
    """Return what is in each file of a case; None for a file that is missing."""
    paths = {name: FOLDER / case / name for name in FILES}
    return {
        name: _parsed(path) if path.exists() else None for name, path in paths.items()
    }


def _parsed(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return json.loads(text)
    text = text.removesuffix("\n")
    if path.suffix == ".csv":
        blocks = text.split("\n\n") if text else []
        return [[*csv.reader(io.StringIO(block))] for block in blocks]
    words: dict[str, list[str]] = {}
    for line in text.split("\n"):
        name, _, sentence = line.partition(": ")
        words.setdefault(name, []).append(sentence)
    return words


def write(case: str, name: str, value: Any) -> None:
    """Store a file of a case, each row or sentence on a line of its own."""
    if name.endswith(".json"):
        text = _rows(value, 2)
    elif name.endswith(".csv"):
        text = "\n\n".join(map(_csv, value))
    else:
        lines = [f"{key}: {line}" for key, lines in value.items() for line in lines]
        text = "\n".join(lines)
    (FOLDER / case / name).write_text(f"{text}\n", encoding="utf-8")


def _rows(value: Any, depth: int) -> str:
    """Return JSON with a line for each element of its outer lists and objects."""
    if isinstance(value, dict) and value and depth:
        parts = [f"{json.dumps(k)}: {_rows(v, depth - 1)}" for k, v in value.items()]
    elif isinstance(value, list) and value and depth < 2:
        parts = [_rows(one, 0) for one in value]
    else:
        return json.dumps(value, ensure_ascii=False)
    inside = ",\n".join(parts)
    return f"{{\n{inside}\n}}" if isinstance(value, dict) else f"[\n{inside}\n]"


def _csv(rows: list[list[str]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue().removesuffix("\n")


def differences(stored: Any, now: Any, path: str = "") -> Iterator[Difference]:
    """Yield in what two JSON values differ; numbers may differ by rounding."""
    if isinstance(stored, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*stored, *now]):
            one, other = stored.get(key, _NOTHING), now.get(key, _NOTHING)
            yield from differences(one, other, f"{path}.{key}" if path else key)
    elif isinstance(stored, list) and isinstance(now, list):
        pairs = zip_longest(stored, now, fillvalue=_NOTHING)
        for place, (one, other) in enumerate(pairs):
            yield from differences(one, other, f"{path}[{place}]")
    elif not _is_equal(stored, now):
        yield Difference(path, stored, now)


def _is_equal(stored: Any, now: Any) -> bool:
    if type(stored) is not type(now):
        return False
    if isinstance(stored, str) and stored != now:
        # The cell of a CSV may be a number.
        try:
            stored, now = float(stored), float(now)
        except ValueError:
            return False
    if isinstance(stored, float):
        return math.isclose(stored, now, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
    return stored == now


def describe(case: str, name: str, found: list[Difference]) -> str:
    """Return differences for a person, and how to accept them."""
    before = read(case)[name]
    lines = [
        f"  {one.path}{_cell(before, one.path)}\n"
        f"    stored: {_short(one.stored)}\n    now:    {_short(one.now)}"
        for one in found[:_MOST_SHOWN]
    ]
    if len(found) > _MOST_SHOWN:
        lines.append(f"  and {len(found) - _MOST_SHOWN} more")
    command = "make golden" if name == WORDS else "make golden NUMBERS=1"
    head = f"tests/golden/{case}/{name}: {len(found)} values differ"
    return "\n".join([head, *lines, f"  if that is right: {command}; read the diff"])


def _cell(before: Any, path: str) -> str:
    """Return column and first cell of a row of cells; empty for another path."""
    found = re.fullmatch(r"\[(\d+)\]\[(\d+)\]\[(\d+)\]", path)
    if found is None:
        return ""
    block, row, column = map(int, found.groups())
    try:
        return f" ({before[block][0][column]} of {before[block][row][0]})"
    except LookupError:
        return ""  # it is new


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 400 else f"{text[:400]} ..."
