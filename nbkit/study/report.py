"""The one report of nbkit's notebooks: the same text, tables and pictures everywhere.

A report is static. It shows in a live notebook, in a saved one, on paper and as a page
of its own, and needs no network, no widget and no running kernel. Its result travels
in the saved notebook as ``application/x.nbkit+json``.
"""

from __future__ import annotations

import base64
import functools
import html
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from IPython.display import display

from nbkit.analysis import charts
from nbkit.errors import StoreError
from nbkit.store.metrics import store_error
from nbkit.store.record import write_json
from nbkit.study.wording import UNKNOWN

__all__ = [
    "REPORT_MIME",
    "REPORT_SCHEMA",
    "Figure",
    "Note",
    "Report",
    "SavedReport",
    "Table",
    "read_report",
]

REPORT_SCHEMA = "nbkit.report/1"
REPORT_MIME = "application/x.nbkit+json"
"""Type of the output that carries a report's result in a saved notebook."""

MimeBundle = dict[str, Any]

# Viewers that drop style sheets keep these.
_LEFT = 'style="text-align: left"'
_RIGHT = 'style="text-align: right"'
_ONE_LINE = 'style="text-align: right; white-space: nowrap"'

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; }
.answer { font-size: 1.05rem; font-weight: 600; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { font-weight: 600; padding: .4rem 0; white-space: nowrap; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #8886; }
.wide { overflow-x: auto; margin: 1.2rem 0; }
figure { margin: 1.2rem 0; }
/* A chart is drawn in dark ink: it keeps its white ground in dark mode. */
img { max-width: 100%; height: auto; background: #fff; border-radius: 4px; }
li { margin: .2rem 0; }
@media print {
  body { max-width: none; margin: 0; font-size: 11px; }
  tr, figure { break-inside: avoid; }
}
"""


@dataclass(frozen=True)
class Note:
    """Sentences a reader should see, such as what could not be measured."""

    sentences: Sequence[str]

    def to_html(self) -> str:
        """Return a paragraph, or a list of several sentences."""
        if len(self.sentences) == 1:
            return f"<p>{html.escape(self.sentences[0])}</p>"
        items = (f"<li>{html.escape(sentence)}</li>" for sentence in self.sentences)
        return f"<ul>{''.join(items)}</ul>"

    def to_text(self) -> str:
        """Return one line a sentence."""
        return "\n".join(self.sentences)

    def _repr_mimebundle_(self, **_: Any) -> MimeBundle:
        return {"text/html": self.to_html(), "text/plain": self.to_text()}


@dataclass(frozen=True)
class Table:
    """A table of finished text."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    """Cells in the order of the columns; None is unknown and shows as a dash."""
    notes: Sequence[str] = ()
    """What a reader of these numbers has to know."""

    def to_html(self) -> str:
        """Return a table that needs no style sheet to be read."""
        caption = html.escape(self.caption)
        head = _row(self.columns, "th", _RIGHT)
        body = "".join(_row(row, "td", _ONE_LINE) for row in self._filled())
        notes = Note(self.notes).to_html() if self.notes else ""
        return (
            f'<div class="wide"><table><caption {_LEFT}>{caption}</caption>'
            f"<thead>{head}</thead><tbody>{body}</tbody></table></div>{notes}"
        )

    def to_text(self) -> str:
        """Return aligned columns, the first to the left, the others to the right."""
        lines = [list(self.columns), *self._filled()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        texts = [
            "  ".join(
                cell.ljust(width) if place == 0 else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        rule = "-" * max(map(len, texts))
        notes = ["", *self.notes] if self.notes else []
        return "\n".join([self.caption, "", texts[0], rule, *texts[1:], *notes])

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "caption": self.caption,
            "columns": list(self.columns),
            "rows": [list(row) for row in self.rows],
            "notes": list(self.notes),
        }

    def _filled(self) -> list[list[str]]:
        return [[UNKNOWN if c is None else c for c in row] for row in self.rows]

    def _repr_mimebundle_(self, **_: Any) -> MimeBundle:
        return {"text/html": self.to_html(), "text/plain": self.to_text()}


@dataclass(frozen=True)
class Figure:
    """A chart, drawn once for every viewer."""

    caption: str
    chart: Any
    """An Altair chart."""

    @functools.cached_property
    def png(self) -> bytes:
        """The chart as a picture, for viewers that cannot draw it."""
        return charts.png(self.chart, scale=2)

    @property
    def size(self) -> dict[str, int]:
        """Width and height to show the picture at; it has twice as many pixels."""
        # The first chunk of a PNG: https://www.w3.org/TR/png-3/#11IHDR
        width, height = struct.unpack(">II", self.png[16:24])
        return {"width": width // 2, "height": height // 2}

    def to_html(self) -> str:
        """Return the picture inside the text; its title is part of it."""
        caption = html.escape(self.caption)
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
        return bundle, {"image/png": self.size}


@dataclass(frozen=True)
class Report:
    """A question's answer with everything it rests on."""

    title: str
    answer: str
    """One sentence, computed from the data."""
    notes: Sequence[str] = ()
    """What a reader has to know before believing the answer."""
    tables: Sequence[Table] = ()
    """The first one is the headline."""
    figures: Sequence[Figure] = ()
    """The first one is the answer as a picture."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """The numbers, for programs."""
    next_step: str = ""
    """What to try now."""

    def to_html(self) -> str:
        """Return the report as a page of its own."""
        title = html.escape(self.title)
        figures = [figure.to_html() for figure in self.figures]
        return "\n".join(
            [
                '<!doctype html><html lang="en"><head><meta charset="utf-8">',
                '<meta name="viewport" content="width=device-width">',
                f"<title>{title}</title><style>{_STYLE}</style></head><body>",
                f"<h1>{title}</h1>",
                f'<p class="answer">{html.escape(self.answer)}</p>',
                *figures[:1],
                Note(self.notes).to_html() if self.notes else "",
                *(table.to_html() for table in self.tables),
                *figures[1:],
                f"<p>Next: {html.escape(self.next_step)}</p>" if self.next_step else "",
                "</body></html>",
            ]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the pictures as JSON values."""
        return {
            "schema": REPORT_SCHEMA,
            "title": self.title,
            "answer": self.answer,
            "notes": list(self.notes),
            "tables": [table.to_dict() for table in self.tables],
            "result": dict(self.result),
            "next_step": self.next_step,
        }

    def save(self, folder: Path) -> SavedReport:
        """Write ``report.html`` and ``result.json`` and return what shows them.

        Raises
        ------
        StoreError
            If the folder cannot be written.
        """
        page = folder / "report.html"
        try:
            page.write_text(self.to_html(), encoding="utf-8")
        except OSError as error:
            raise store_error(page, error) from error
        result = folder / "result.json"
        write_json(result, self.to_dict())
        return SavedReport(self, page, result)


@dataclass(frozen=True)
class SavedReport:
    """A report that lies in files; a notebook shows its first chart and its answer."""

    report: Report
    page: Path
    """The report as a page of its own."""
    result: Path
    """The report as JSON."""

    def bundle(self) -> MimeBundle:
        """Return the answer, where the rest is, and the result for programs."""
        report = self.report
        rest = [f"Report: {self.page}", f"Result: {self.result}"]
        if report.next_step:
            rest.append(f"Next: {report.next_step}")
        return {
            "text/html": f"<p><strong>{html.escape(report.answer)}</strong></p>"
            f"{Note(rest).to_html()}",
            "text/plain": "\n".join([report.answer, *rest]),
            REPORT_MIME: {
                **report.to_dict(),
                "page": str(self.page),
                "result_file": str(self.result),
            },
        }

    def _ipython_display_(self) -> None:
        for figure in self.report.figures[:1]:
            display(figure)
        display(self.bundle(), raw=True)


def _row(cells: Sequence[str], tag: str, style: str) -> str:
    first, *others = map(html.escape, cells)
    row = "".join(f"<{tag} {style}>{cell}</{tag}>" for cell in others)
    return f"<tr><{tag} {_LEFT}>{first}</{tag}>{row}</tr>"


def read_report(notebook: Path) -> dict[str, Any]:
    """Return the result that a saved notebook carries.

    Raises
    ------
    StoreError
        If the notebook has no report, because it did not come to its end.
    """
    content = nbformat.read(notebook, as_version=4)
    for cell in reversed(content.cells):
        for output in cell.get("outputs", []):
            report = output.get("data", {}).get(REPORT_MIME)
            if report is not None:
                return report
    message = f"{notebook} has 0 reports, 1 is needed; run the notebook to its end."
    raise StoreError(message)
