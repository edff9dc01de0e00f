"""The texts for people, as programs see them: blocks of code, names and links."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "Block", "blocks", "section"]

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.S | re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block of code."""

    language: str
    text: str
    line: int
    """Where it begins in its page."""

    @property
    def file(self) -> str | None:
        """The file that its first line names, as in ``# my_models.py``."""
        named = re.match(r"# (\w+\.py)\n", self.text)
        return named.group(1) if named else None

    @property
    def num_lines(self) -> int:
        """Lines of code: neither empty nor a comment."""
        lines = map(str.strip, self.text.splitlines())
        return sum(bool(line) and not line.startswith("#") for line in lines)


def blocks(page: str, language: str = "python") -> list[Block]:
    """Return a page's fenced blocks of a language, in order."""
    return [
        Block(found["language"], found["text"], page.count("\n", 0, found.start()) + 1)
        for found in _FENCE.finditer(page)
        if found["language"] == language
    ]


def section(page: str, heading: str) -> str:
    """Return what stands below a heading, up to the next heading of any level."""
    # A comment in a block of code looks like a heading.
    masked = _FENCE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), page)
    places = [found.start() for found in re.finditer(r"^#+ ", masked, re.M)]
    begin = masked.index(f"\n{heading}\n") + 1
    end = next((place for place in places if place > begin), len(page))
    return page[begin:end]
