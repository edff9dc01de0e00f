"""Parts of a report: notes, tables, figures and sources, each in every form.

A table is text for the terminal, HTML for notebooks and pages, and CSV for other
programs; a figure is a chart for viewers that can draw it, and a picture for the rest.
"""

from __future__ import annotations

import base64
import csv
import functools
import html
import io
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbkit.plural import plural
from nbkit.reports.charts import png
from nbkit.statistics.quantities import UNKNOWN
from nbkit.visible import visible

MimeBundle = dict[str, Any]

_MOST_COLUMNS = 9
"""With more, cells take several lines, so that all columns are seen."""

_NUMBER = re.compile(r"[<>≤≥≈~(\[]*\s*[+−-]?\s*\.?\d")
"""How a cell with a number begins."""

_PERCENT = re.compile(r"(?<=\d) %")
"""Of a number, which it does not leave at the end of a line."""

_COMMAND = re.compile(
    r"`?(papermill [^\n]*|nbkit\.Study\.open\(.*?\)\.resume\(\)"
    r"|(?<=`)nbkit try [^`\n]*)`?"
)
"""What a next step tells to run."""

# Viewers that drop style sheets keep these.
_LEFT = 'style="text-align: left"'
_RIGHT = 'style="text-align: right"'
_ONE_LINE = 'style="text-align: right; white-space: nowrap"'


def escape(text: str) -> str:
    """Return a text for HTML, with special and control characters escaped."""
    return _PERCENT.sub("\N{NO-BREAK SPACE}%", html.escape(visible(text, lines=True)))


@dataclass(frozen=True)
class Note:
    """Sentences for the reader, such as what could not be measured."""

    sentences: Sequence[str]

    def to_html(self) -> str:
        """Return a paragraph, or a list of several sentences."""
        if len(self.sentences) == 1:
            return f"<p>{escape(self.sentences[0])}</p>"
        items = (f"<li>{escape(sentence)}</li>" for sentence in self.sentences)
        return f"<ul>{''.join(items)}</ul>"

    def to_text(self) -> str:
        """Return one line per sentence."""
        return "\n".join(self.sentences)

    def _repr_mimebundle_(self, **_: Any) -> MimeBundle:
        return {"text/html": self.to_html(), "text/plain": self.to_text()}


@dataclass(frozen=True)
class Source:
    """Source of a number or a method."""

    text: str
    url: str | None = None

    def to_html(self) -> str:
        """Return a link, or only the text if there is no URL."""
        text = escape(self.text)
        if self.url is None or not self.url.startswith(("https://", "http://")):
            return text if self.url is None else f"{text}, {escape(self.url)}"
        return f'<a href="{escape(self.url)}">{text}</a>'


@dataclass(frozen=True)
class Table:
    """A table of finished text."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    """Cells in the order of the columns; None is unknown and shows as a dash."""
    notes: Sequence[str] = ()
    """Notes below the table."""
    values: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Exact numbers by column name, which ends with the unit. They are additional
    columns of the CSV and not displayed."""

    def to_html(self, *, with_notes: bool = True) -> str:
        """Return a table that is readable without a style sheet."""
        caption = escape(self.caption)
        columns = [*zip(*self.rows, strict=True)] or [()] * len(self.columns)
        is_text = [
            not place or _is_text(column) for place, column in enumerate(columns)
        ]
        above = [_LEFT if left else _RIGHT for left in is_text]
        styles = [_LEFT if left else _ONE_LINE for left in is_text]
        head = _row(self.columns, 'th scope="col"', "th", above)
        body = "".join(_row(row, "td", "td", styles) for row in self._filled())
        notes = Note(self.notes).to_html() if self.notes and with_notes else ""
        kind = "wide many" if len(self.columns) > _MOST_COLUMNS else "wide"
        # What scrolls has to take the keyboard's focus, and a name with it.
        region = f'tabindex="0" role="region" aria-label="{caption}"'
        return (
            f'<div class="{kind}" {region}><table><caption {_LEFT}>{caption}</caption>'
            f"<thead>{head}</thead><tbody>{body}</tbody></table></div>{notes}"
        )

    def to_text(self, max_width: int | None = None) -> str:
        """Return aligned columns, the first to the left, the others to the right.

        Columns that do not fit into `max_width` characters are counted instead.
        """
        lines = [list(self.columns), *self._filled()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = len(widths)
        while max_width and shown > 1 and sum(widths[:shown]) + 2 * shown > max_width:
            shown -= 1
        texts = [
            "  ".join(
                cell.rjust(width) if place else cell.ljust(width)
                for place, (cell, width) in enumerate(
                    zip(line[:shown], widths[:shown], strict=True)
                )
            ).rstrip()
            for line in lines
        ]
        rule = "-" * max(map(len, texts))
        hidden = len(widths) - shown
        more = [f"({plural(hidden, 'more column')} in the report)"] if hidden else []
        notes = ["", *more, *self.notes] if more or self.notes else []
        return "\n".join([self.caption, "", texts[0], rule, *texts[1:], *notes])

    def to_csv(self) -> str:
        """Return the table as CSV (RFC 4180).

        Displayed columns come first, then the exact numbers; unknown values are empty.
        Caption and notes are not included.

        References
        ----------
        https://www.rfc-editor.org/rfc/rfc4180
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\r\n")
        writer.writerow([*self.columns, *self.values])
        for number, row in enumerate(self.rows):
            printed = ["" if cell in (None, UNKNOWN) else cell for cell in row]
            writer.writerow([*printed, *(v[number] for v in self.values.values())])
        return text.getvalue()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "caption": self.caption,
            "columns": list(self.columns),
            "rows": [list(row) for row in self.rows],
            "notes": list(self.notes),
            "values": {name: list(column) for name, column in self.values.items()},
        }

    def _filled(self) -> list[list[str]]:
        return [[UNKNOWN if c is None else c for c in row] for row in self.rows]

    def _repr_mimebundle_(self, **_: Any) -> MimeBundle:
        return {"text/html": self.to_html(), "text/plain": self.to_text()}


@dataclass(frozen=True)
class Figure:
    """A chart, rendered once for all viewers."""

    caption: str
    chart: Any
    """An Altair chart."""

    @functools.cached_property
    def png(self) -> bytes:
        """The chart as PNG, for viewers without JavaScript."""
        return png(self.chart)

    @property
    def size(self) -> dict[str, int]:
        """Display width and height; the PNG has twice as many pixels."""
        # The first chunk of a PNG: https://www.w3.org/TR/png-3/#11IHDR
        width, height = struct.unpack(">II", self.png[16:24])
        return {"width": width // 2, "height": height // 2}

    def to_html(self) -> str:
        """Return the chart as an embedded image that includes its title."""
        caption = escape(self.caption)
        data = base64.b64encode(self.png).decode()
        return (
            f'<figure><img alt="{caption}" width="{self.size["width"]}" '
            f'src="data:image/png;base64,{data}"></figure>'
        )

    def _repr_mimebundle_(self, **_: Any) -> tuple[MimeBundle, MimeBundle]:
        bundle = {
            "application/vnd.vegalite.v5+json": self.chart.to_dict(),
            "image/png": base64.b64encode(self.png).decode(),
            "text/plain": f"[chart] {self.caption}",
        }
        return bundle, {"image/png": {**self.size, "alt": self.caption}}


def with_commands(text: str) -> str:
    """Return sentences as a page has them, each command in a block to copy."""
    blocks = [part.strip() for part in _COMMAND.split(text)]
    return "".join(
        f"<pre><code>{escape(block)}</code></pre>"
        if place % 2
        else f"<p>{escape(block)}</p>"
        for place, block in enumerate(blocks)
        if block
    )


def _is_text(column: Sequence[str | None]) -> bool:
    """Tell whether a column holds words alone, which stand to the left."""
    known = [cell for cell in column if cell and cell != UNKNOWN]
    return bool(known) and not any(map(_NUMBER.match, known))


def _row(cells: Sequence[str], opened: str, tag: str, styles: Sequence[str]) -> str:
    row = "".join(
        f"<{opened} {style}>{escape(cell)}</{tag}>"
        for cell, style in zip(cells, styles, strict=True)
    )
    return f"<tr>{row}</tr>"
