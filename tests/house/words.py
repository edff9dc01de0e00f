"""The words of words.toml in nbkit's texts: where, and how many.

    python -m tests.house.words

Part of `make check`. None may be in pages, notebooks, or strings that users see. In
docstrings and comments they are counted by room, against limits that only fall.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.house.texts import Passage, of_json, of_notebook, of_python, of_script

__all__ = ["Finding", "Words", "areas", "excesses", "findings"]

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_suffix(".toml")

PAGES = ("README.md", "CONTRIBUTING.md", ".github/**/*.md")
CODE = {
    "nbkit/**/*.py": of_python,
    "nbkit/**/*.js": of_script,
    "nbkit/**/*.json": of_json,
    "labextension/src/*.ts": of_script,
    "labextension/src/*.tsx": of_script,
    "labextension/schema/*.json": of_json,
}
_BUILT = ROOT / "nbkit/labextension"


@dataclass(frozen=True)
class Finding:
    """A word of the list in a text."""

    area: str
    """``Markdown``, ``notebooks``, ``strings``; or a room, for its documentation."""
    place: str
    word: str
    better: str


class Words:
    """The words of the list, and their right uses."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self.limits: dict[str, int] = content["limits"]
        self._words = [(_compiled(text), to) for text, to in content["words"].items()]
        self._right = [_compiled(entry["use"]) for entry in content["right"]]

    def found(self, text: str) -> Iterator[tuple[int, str, str]]:
        """Yield the offset of every word in a text, the word, and the better one."""
        right = [one.span() for use in self._right for one in use.finditer(text)]
        for pattern, better in self._words:
            for one in pattern.finditer(text):
                if not any(a <= one.start() and one.end() <= b for a, b in right):
                    yield one.start(), " ".join(one[0].split()), better


def _compiled(pattern: str) -> re.Pattern[str]:
    spaced = pattern.replace(" ", r"\s+")
    return re.compile(rf"\b(?:{spaced})\b", re.I)


def areas(root: Path) -> Iterator[tuple[str, Path, Iterator[Passage]]]:
    """Yield the texts of every file: area, file, and its passages."""
    pages = [*PAGES, "nbkit/**/*.md", "tests/**/*.md"]
    for path in _files(root, *pages):
        yield "Markdown", path, iter([Passage(path.read_text(encoding="utf-8"), 1)])
    for path in _files(root, "notebooks/*.ipynb"):
        yield "notebooks", path, of_notebook(path.read_text(encoding="utf-8"))
    for pattern, passages in CODE.items():
        for path in _files(root, pattern):
            yield "strings", path, passages(path.read_text(encoding="utf-8"))


def _files(root: Path, *patterns: str) -> Iterator[Path]:
    for pattern in patterns:
        found = (path for path in root.glob(pattern) if _BUILT not in path.parents)
        yield from sorted(found)


def findings(root: Path, words: Words) -> Iterator[Finding]:
    """Yield every word of the list in the texts below a folder."""
    for area, path, passages in areas(root):
        inside = path.relative_to(root)
        for one in passages:
            where = _room(inside) if one.is_documentation else area
            for offset, word, better in words.found(one.text):
                line = one.line + one.text.count("\n", 0, offset)
                yield Finding(where, f"{inside}:{line}", word, better)


def _room(path: Path) -> str:
    first, *rest = path.parts
    if first != "nbkit":
        return first
    return rest[0] if len(rest) > 1 else "top"


def excesses(found: Mapping[str, int], limits: Mapping[str, int]) -> list[str]:
    """Return the areas with more words than their limit; without one that is 0."""
    return [
        f"{area}: {count} words of the list, over {limits.get(area, 0)}"
        for area, count in found.items()
        if count > limits.get(area, 0)
    ]


def main(arguments: list[str]) -> int:
    """Print places and counts; return 1 if an area is over its limit.

    Places in docstrings and comments are printed for the rooms that are named.
    """
    words = Words(tomllib.loads(LIST.read_text(encoding="utf-8")))
    found = list(findings(ROOT, words))
    for one in found:
        if one.area not in words.limits or one.area in arguments:
            print(f"{one.place}: {one.word} -> {one.better}")
    counts = Counter(one.area for one in found)
    for area in dict.fromkeys(["Markdown", "notebooks", "strings", *words.limits]):
        print(f"{area:<14}{counts[area]:>6}{words.limits.get(area, 0):>8}")
    over = excesses(counts, words.limits)
    for line in over:
        print(f"words: {line}; see tests/house/words.toml", file=sys.stderr)
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
