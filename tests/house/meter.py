"""How large the house is: lines by room and the biggest files, against limits.

    python -m tests.house.meter

Part of `make check`. A limit in meter.toml is raised in a commit of its own that names
the capability which the lines bring, and lowered with what makes the code smaller.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[2] / "nbkit"
LIMITS = Path(__file__).with_suffix(".toml")
_BIGGEST = 15
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def measured(package: Path) -> dict[str, Any]:
    """Return lines and docstring lines by room, and lines by file."""
    lines: Counter[str] = Counter()
    docstrings: Counter[str] = Counter()
    files: dict[str, int] = {}
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        inside = path.relative_to(package)
        room = inside.parts[0] if len(inside.parts) > 1 else "top"
        files[str(inside)] = text.count("\n")
        lines[room] += files[str(inside)]
        docstrings[room] += sum(map(_docstring_lines, ast.walk(ast.parse(text))))
    return {"lines": dict(lines), "docstring_lines": dict(docstrings), "files": files}


def excesses(found: Mapping[str, Any], limits: Mapping[str, Any]) -> list[str]:
    """Return what is larger than its limit, or has none."""
    return [
        f"{room}: {count} {kind.replace('_', ' ')}, over {limits[kind].get(room, 0)}"
        for kind in ("lines", "docstring_lines")
        for room, count in found[kind].items()
        if count > limits[kind].get(room, 0)
    ]


def _docstring_lines(node: ast.AST) -> int:
    if not isinstance(node, _DOCUMENTED) or ast.get_docstring(node) is None:
        return 0
    first = node.body[0]
    return (first.end_lineno or first.lineno) - first.lineno + 1


def main() -> int:
    """Print the table; return 1 if something is over its limit."""
    found = measured(PACKAGE)
    limits = tomllib.loads(LIMITS.read_text(encoding="utf-8"))
    print(f"{'room':<14}{'lines':>8}{'docstrings':>12}{'limit':>8}")
    rooms = sorted(found["lines"].items(), key=lambda item: -item[1])
    for room, count in [*rooms, ("all", sum(found["lines"].values()))]:
        documented = found["docstring_lines"].get(room)
        if room == "all":
            documented = sum(found["docstring_lines"].values())
        limit = limits["lines"].get(room, "")
        print(f"{room:<14}{count:>8,}{documented:>12,}{limit:>8}")
    biggest = sorted(found["files"].items(), key=lambda item: -item[1])[:_BIGGEST]
    print("biggest:", ", ".join(f"{file} {count}" for file, count in biggest))
    over = excesses(found, limits)
    for line in over:
        print(f"meter: {line}; see tests/house/meter.py", file=sys.stderr)
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main())
