"""The files in which a case is stored, and in what something differs from them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from tests.golden.studies import FOLDER

__all__ = ["PARTS", "Difference", "describe", "differences", "read", "write"]

PARTS = ("numbers", "words")
_RELATIVE = 1e-9
"""Versions of Python add up floating-point numbers in different ways."""
_ABSOLUTE = 1e-12
_WIDTH = 100
_MOST_SHOWN = 12
_NOTHING = "(nothing)"


class Difference(NamedTuple):
    """One value that is not as it is stored."""

    path: str
    stored: Any
    now: Any


def read(case: str) -> dict[str, Any]:
    """Return ``numbers`` and ``words`` of a case; None for a file that is missing."""
    paths = {part: _path(case, part) for part in PARTS}
    return {
        part: json.loads(path.read_text()) if path.exists() else None
        for part, path in paths.items()
    }


def write(case: str, part: str, value: Any) -> bool:
    """Store a part of a case; return whether its file has changed."""
    path, text = _path(case, part), f"{_text(value, '')}\n"
    if path.exists() and path.read_text() == text:
        return False
    path.write_text(text)
    return True


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


def describe(case: str, part: str, found: list[Difference]) -> str:
    """Return differences for a person, and how to accept them."""
    before = read(case)[part]
    lines = [
        f"  {one.path}{_cell(before, one.path)}\n"
        f"    stored: {_short(one.stored)}\n    now:    {_short(one.now)}"
        for one in found[:_MOST_SHOWN]
    ]
    if len(found) > _MOST_SHOWN:
        lines.append(f"  and {len(found) - _MOST_SHOWN} more")
    command = "make golden" if part == "words" else "make golden NUMBERS=1"
    file = f"tests/golden/{case}/{part}.json"
    head = f"{file}: {len(found)} values differ"
    return "\n".join([head, *lines, f"  if that is right: {command}; read the diff"])


def _cell(before: Any, path: str) -> str:
    """Return column and first cell of a table's row; empty for another path."""
    found = re.fullmatch(r"tables\[(\d+)\]\[(\d+)\]\[(\d+)\]", path)
    if found is None:
        return ""
    table, row, column = map(int, found.groups())
    try:
        head, cells = before["tables"][table][0], before["tables"][table][row]
        return f" ({head[column]} of {cells[0]})"
    except (LookupError, TypeError):
        return ""  # it is new


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 400 else f"{text[:400]} ..."


def _path(case: str, part: str) -> Path:
    return FOLDER / case / f"{part}.json"


def _text(value: Any, indent: str) -> str:
    """Return JSON in which whatever fits stands on one line, for diffs."""
    line = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or len(indent) + len(line) <= _WIDTH:
        return line
    more = f"{indent} "
    if isinstance(value, dict):
        parts = [f"{json.dumps(k)}: {_text(v, more)}" for k, v in value.items()]
        begin, end = "{", "}"
    else:
        parts, (begin, end) = [_text(one, more) for one in value], "[]"
    inside = f",\n{more}".join(parts)
    return f"{begin}\n{more}{inside}\n{indent}{end}"
