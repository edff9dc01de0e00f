"""A comparison of runs as a page: the ratio, and the other differences."""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import groupby

from nbkit.reproduction.differences import Comparison, Difference
from nbkit.reproduction.outcome import Reproduction

_LONG_CHARACTERS = 60
_MOST_DIFF_LINES = 2000
_LEFT = 'style="text-align:left;vertical-align:top"'
_COLOURS = {"+": "#2e7d3240", "-": "#c6282840"}
"""Background of added and removed lines: pale enough for both themes."""


def comparison_html(comparison: Comparison) -> str:
    """Return a page's part that needs neither a style sheet nor a kernel."""
    names = comparison.a_name, comparison.b_name
    return _page(
        comparison.sentence, comparison.differences, names, comparison.code_diff
    )


def reproduction_html(reproduction: Reproduction) -> str:
    """Return the same of a run and the runs that repeat it."""
    names = "original", "now"
    return _page(reproduction.sentence, reproduction.differences, names, "")


def _page(
    sentence: str,
    differences: Sequence[Difference],
    names: tuple[str, str],
    code_diff: str,
) -> str:
    parts = [f"<p><strong>{html.escape(sentence)}</strong></p>"]
    if differences:
        parts.append(_table(differences, names))
    if not (differences or code_diff):
        parts.append("<p>No other recorded value differs.</p>")
    if code_diff:
        parts.append(_details("Code difference", _diff(code_diff)))
    return f'<div class="nbkit-comparison">{"".join(parts)}</div>'


def _table(differences: Sequence[Difference], names: tuple[str, str]) -> str:
    columns = ("", *map(html.escape, names))
    head = "".join(f'<th scope="col" {_LEFT}>{name}</th>' for name in columns)
    groups = groupby(differences, key=lambda difference: difference.part)
    body = "".join(
        f'<tr><th scope="rowgroup" colspan="3" {_LEFT}>{html.escape(part)}</th></tr>'
        + "".join(map(_row, members))
        for part, members in groups
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(difference: Difference) -> str:
    cells = "".join(
        f"<td {_LEFT}>{_value(text)}</td>" for text in (difference.a, difference.b)
    )
    name = html.escape(difference.name)
    style = 'style="text-align:left;vertical-align:top;font-weight:normal"'
    return f'<tr><th scope="row" {style}>{name}</th>{cells}</tr>'


def _value(text: str) -> str:
    """Return a value; a long one shows its begin until it is unfolded."""
    if len(text) <= _LONG_CHARACTERS:
        return html.escape(text)
    begin = html.escape(text[:_LONG_CHARACTERS])
    whole = f'<span style="overflow-wrap:anywhere">{html.escape(text)}</span>'
    return _details(f"{begin}…", whole)


def _diff(text: str) -> str:
    lines = text.split("\n")
    shown = "\n".join(map(_diff_line, lines[:_MOST_DIFF_LINES]))
    left = len(lines) - _MOST_DIFF_LINES
    more = f"\n… {left:,} more" if left > 0 else ""
    return f"<pre>{shown}{more}</pre>"


def _diff_line(line: str) -> str:
    colour = _COLOURS.get(line[:1])
    if colour is None or line.startswith(("+++", "---")):
        return html.escape(line)
    return f'<span style="background:{colour}">{html.escape(line)}</span>'


def _details(summary: str, content: str) -> str:
    return f"<details><summary>{summary}</summary>{content}</details>"
