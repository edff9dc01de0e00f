"""Words that nbkit's texts do not use: pages, notebooks, and strings that users see."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

BETTER = {
    "told": "was given, or the message itself",
    "nobody": "no one, no user, no process",
    "somebody": "another user, another process, the owner",
    "whoever|whom(ever)?": "who; name the user or the process",
    "(?<!jobs )at once": "concurrently, together or immediately",
    "(go|goes|going|went|gone) on": "continue",
    "lie|lies": "is in, is on",
    "anew": "again",
    "mend|mends|mended|mending": "fix",
    "(stand|stands|standing|stood) in": "replace, is used instead, CPU fallback",
    # "There is no GPU" is how everyone writes it.
    r"(?<!there )(is|are|was|were) no(?! (longer|more|less|fewer|later)\b)": "is not a",
    "spare|spares|spared|sparing": "avoid",
    "as yet": "yet",
    "it is said|is said( here)? first": "say it; the plan lists it first",
    "of (its|their) own": "own, separate",
    "in vain": "without success",
    "beyond which": "above which",
    "the like": "similar",
    "thereby|hence|ere": "so, before",
    "(the|a|another|each|every|first|last|next) look|(two|three) looks": "check",
    "(give|gives|gave|giving|make|makes|made|making) way": "is preempted",
    "by hand": "manually",
    "what others wrote": "name the author",
    "(carry|carries|carried|carrying) an answer": "support an answer",
}
"""Regular expressions for whole words in any case, and what to write."""

TEXTS = (
    *("README.md", "CONTRIBUTING.md", ".github/**/*.md", "nbkit/**/*.md"),
    *("tests/**/*.md", "notebooks/*.ipynb", "nbkit/*/**/*.json", "nbkit/**/*.py"),
    *("nbkit/widgets/**/*.js", "labextension/src/*.ts*", "labextension/schema/*.json"),
)


def texts(path: Path) -> Iterator[str]:
    """Yield the texts of a file: of Python its strings, but no docstring."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield text
        return
    nodes = [*ast.walk(ast.parse(text))]
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        value = getattr(node, "value", None)
        if isinstance(value, str) and id(node) not in docstrings:
            yield value


def words(text: str) -> Iterator[tuple[str, str]]:
    """Yield the words of a text that have a better one, and that one."""
    text = " ".join(text.split())
    for pattern, better in BETTER.items():
        for found in re.finditer(rf"\b(?:{pattern})\b", text, re.IGNORECASE):
            yield found[0], better


@pytest.mark.parametrize("pattern", TEXTS)
def test_texts_have_none_of_the_words(pattern):
    paths = [p for p in ROOT.glob(pattern) if "nbkit/labextension" not in str(p)]

    found = [(p, one) for p in paths for text in texts(p) for one in words(text)]

    assert [(str(path.relative_to(ROOT)), *one) for path, one in found] == []


def test_words_any_case_and_over_lines(tmp_path):
    (tmp_path / "one.py").write_text(
        '"""Told."""\ntold = f"Anew {1} goes\\non " "in vain"\n'
        'right = "there is no GPU; is no longer; jobs at once; untold"\n'
    )

    found = [one for text in texts(tmp_path / "one.py") for one, _ in words(text)]

    assert sorted(found) == ["Anew", "goes on", "in vain"]
