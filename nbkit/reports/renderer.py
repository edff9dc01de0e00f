"""The one report of nbkit's notebooks: the same text, tables and pictures everywhere.

A report is static. It shows in a live notebook, in a saved one, on paper and as a
separate page, and needs no network, no widget and no running kernel. Its result travels
in the saved notebook as ``application/x.nbkit+json``. `nbkit.report` makes the report
of a study.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import nbformat
from IPython.display import display

from nbkit.errors import StoreError
from nbkit.reports.parts import (
    Figure,
    MimeBundle,
    Note,
    Source,
    Table,
    escape,
    with_commands,
)
from nbkit.statistics import NoiseFloor
from nbkit.store.metrics import store_error
from nbkit.store.record import read_json, replace_file, write_json
from nbkit.visible import visible

MOST_NOTES = 5
"""Notes of the first screen; more are folded."""

_TERMINAL_WIDTH = 100
"""Characters of a line of the first screen."""

REPORT_SCHEMA = "nbkit.report/1"
REPORT_MIME = "application/x.nbkit+json"
"""MIME type of a report's result in the outputs of a notebook."""

_ELSEWHERE = "use another folder (nbkit report STUDY --folder FOLDER)"
_WITHOUT = "Measurements (inconclusive)"
_WITHOUT_TIMES = "Measurements (rates and times inconclusive)"
_PAGE, _RESULT, _FIGURES, _TABLES = "report.html", "result.json", "figures", "tables"

_STYLE = (resources.files("nbkit.reports") / "report.css").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Report:
    """The answer to a question, with its data and methods."""

    title: str
    answer: str
    """One sentence, computed from the data."""
    conditions: str = ""
    """GPU, software, batch, steps and n, in one line."""
    notes: Sequence[str] = ()
    """Caveats of the answer, the most important first."""
    answered_causes: Collection[str] = ()
    """Codes of bottlenecks that the study measures; the report suggests no fix."""
    tables: Sequence[Table] = ()
    """Tables; the first is the headline."""
    figures: Sequence[Figure] = ()
    """Charts; the first shows the answer."""
    method: Sequence[str] = ()
    """How it was measured: statistic, order, where and when."""
    sources: Sequence[Source] = ()
    """Sources of methods and published numbers."""
    result: Mapping[str, Any] = field(default_factory=dict)
    """The numbers, for programs."""
    next_step: str = ""
    """Suggested next step."""
    controls: Sequence[NoiseFloor] = ()
    """Noise floors from A/A controls; see `nbkit.reports.caveats`."""
    untimed: str = ""
    """The part of the answer that does not depend on rates or times, such as a loss; it
    is valid even if the machine was disturbed."""

    @property
    def has_no_answer(self) -> bool:
        """Whether caveats make tables and charts unreliable."""
        return bool(self.result.get("caveats"))

    def to_html(self) -> str:
        """Return the report as an HTML page."""
        title = escape(self.title)
        items = (f"<li>{source.to_html()}</li>" for source in self.sources)
        sources = "".join(items)
        parts = [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{title}</title><style>\n{_STYLE}</style></head><body><main>",
            f"<h1>{title}</h1>",
            f'<p class="answer">{escape(self.answer)}</p>',
            f'<p class="conditions">{escape(self.conditions)}</p>',
            *self._first_screen(),
            f"<h2>Next</h2>{with_commands(self.next_step)}" if self.next_step else "",
            *self._folded(),
            _fold("Method", [Note(self.method).to_html()] if self.method else []),
            _fold(
                "Sources", [f'<ul class="sources">{sources}</ul>'] if sources else []
            ),
            "</main></body></html>",
        ]
        return "\n".join(part for part in parts if part) + "\n"

    def _first_screen(self) -> list[str]:
        """Return the headline table and chart with the first notes.

        Without an answer there is neither table nor chart: the notes say why.
        """
        notes = [Note(self.notes[:MOST_NOTES]).to_html()] if self.notes else []
        if self.has_no_answer:
            return notes
        tables = [table.to_html(with_notes=False) for table in self.tables[:1]]
        return [*tables, *(figure.to_html() for figure in self.figures[:1]), *notes]

    def _folded(self) -> list[str]:
        """Return further notes, tables and figures, each below a summary to open."""
        first = 0 if self.has_no_answer else 1
        more = list(self.notes[MOST_NOTES:])
        if not self.has_no_answer and self.tables:
            more += self.tables[0].notes
        kind = _WITHOUT_TIMES if self.untimed else _WITHOUT
        return [
            _fold("More notes", [Note(more).to_html()] if more else []),
            f"<h2>{kind}</h2>" if self.has_no_answer else "",
            *(_fold(part.caption, [part.to_html()]) for part in self.tables[first:]),
            *(_fold(part.caption, [part.to_html()]) for part in self.figures[first:]),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the charts as JSON values."""
        return {
            "schema": REPORT_SCHEMA,
            "title": self.title,
            "answer": self.answer,
            "conditions": self.conditions,
            "notes": list(self.notes),
            "tables": [table.to_dict() for table in self.tables],
            "figures": [figure.caption for figure in self.figures],
            "method": list(self.method),
            "sources": [asdict(source) for source in self.sources],
            "result": dict(self.result),
            "next_step": self.next_step,
        }

    def save(self, folder: Path) -> SavedReport:
        """Write the page, the result, every picture and every table.

        ``report.html``, ``result.json``, ``figures/*.png`` and ``tables/*.csv``. Files
        are replaced atomically. Charts and tables of an earlier report that are not in
        this one are removed; other files in the folder are unchanged.
        """
        pictures = _file_names(
            _FIGURES, "png", [figure.caption for figure in self.figures]
        )
        sheets = _file_names(_TABLES, "csv", [table.caption for table in self.tables])
        # Drawn before the first file is replaced.
        contents = {
            **dict(zip(pictures, (figure.png for figure in self.figures), strict=True)),
            **dict(zip(sheets, (table.to_csv() for table in self.tables), strict=True)),
            _PAGE: self.to_html(),
        }
        page, result = folder / _PAGE, folder / _RESULT
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise store_error(folder, error, _ELSEWHERE) from error
        earlier = _earlier_files(folder)
        for name, content in contents.items():
            data = content.encode() if isinstance(content, str) else content
            try:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                replace_file(folder / name, data)
            except OSError as error:
                raise store_error(folder / name, error, _ELSEWHERE) from error
        write_json(result, {**self.to_dict(), "files": list(contents)})
        _remove(folder, earlier - contents.keys())
        return SavedReport(
            self,
            page,
            result,
            tuple(folder / name for name in pictures),
            tuple(folder / name for name in sheets),
        )


@dataclass(frozen=True, repr=False)
class SavedReport:
    """A report saved as files; a notebook shows its first chart and its answer."""

    report: Report
    page: Path
    """The report as an HTML page."""
    result: Path
    """The report as JSON."""
    figures: tuple[Path, ...] = ()
    """Every chart as PNG, in the order of the report."""
    tables: tuple[Path, ...] = ()
    """Every table as CSV, in the order of the report."""
    study_id: str | None = None
    """Id of the reported study, if it is a single study in the store."""

    def bundle(self) -> MimeBundle:
        """Return the first screen with the paths of all files, and the result."""
        report = self.report
        tables = report.tables[: not report.has_no_answer]
        notes = [*report.notes[:MOST_NOTES], *self._places()]
        html = [
            f"<p><strong>{escape(report.answer)}</strong></p>",
            f"<p>{escape(report.conditions)}</p>" if report.conditions else "",
            *(table.to_html(with_notes=False) for table in tables),
            Note(notes).to_html(),
            self._link(),
            with_commands(f"Next: {report.next_step}") if report.next_step else "",
        ]
        return {
            "text/html": "".join(html),
            "text/plain": repr(self),
            REPORT_MIME: {
                **report.to_dict(),
                "page": str(self.page),
                "result_file": str(self.result),
                "figure_files": [str(path) for path in self.figures],
                "table_files": [str(path) for path in self.tables],
            },
        }

    def __repr__(self) -> str:
        next_step = self.report.next_step
        end = [*self._places(), *([f"Next:   {next_step}"] if next_step else [])]
        blocks = [*first_screen(self.report.to_dict()), "\n".join(end)]
        return visible("\n\n".join(blocks), lines=True)

    def _link(self) -> str:
        """Return a link to the whole: JupyterLab opens it in a tab of its own."""
        attributes = f'href="{escape(self.page.absolute().as_uri())}"'
        if self.study_id is not None:
            attributes += (
                ' data-commandlinker-command="nbkit:open-report" '
                f'data-commandlinker-args="{escape(json.dumps({"id": self.study_id}))}"'
            )
        return f"<p><a {attributes}>Open the whole report</a></p>"

    def _places(self) -> list[str]:
        folders = {path.parent.name: path for path in (*self.figures, *self.tables)}
        files = [f"{name}/*{path.suffix}" for name, path in folders.items()]
        return [
            f"Report: {self.page}",
            f"Data:   {', '.join([str(self.result), *files])}",
        ]

    def _ipython_display_(self) -> None:
        for figure in self.report.figures[: not self.report.has_no_answer]:
            display(figure)
        display(self.bundle(), raw=True)


def first_screen(report: Mapping[str, Any]) -> list[str]:
    """Return answer, conditions, headline table and first notes, a block each.

    Without an answer there is no table: the notes say why.
    """
    is_inconclusive = bool(report["result"].get("caveats"))
    tables = [] if is_inconclusive else report["tables"][:1]
    blocks = [
        f"{report['answer']}\n{report.get('conditions', '')}".strip(),
        *(Table(**{**table, "notes": ()}).to_text(_TERMINAL_WIDTH) for table in tables),
        "\n".join(f"- {note}" for note in report["notes"][:MOST_NOTES]),
    ]
    return [block for block in blocks if block]


def _fold(summary: str, parts: Sequence[str]) -> str:
    """Return parts below a line that opens them; paper shows them open."""
    if not parts:
        return ""
    return f"<details><summary>{escape(summary)}</summary>{''.join(parts)}</details>"


def _file_names(folder: str, suffix: str, captions: Sequence[str]) -> list[str]:
    """Return a file name for each caption, equal for equal reports."""
    names: list[str] = []
    for caption in captions:
        slug = re.sub(r"[^a-z0-9]+", "-", caption.lower())[:60].strip("-") or folder
        name, number = f"{folder}/{slug}.{suffix}", 2
        while name in names:
            name, number = f"{folder}/{slug}-{number}.{suffix}", number + 1
        names.append(name)
    return names


def _earlier_files(folder: Path) -> set[str]:
    """Return the pictures and tables of the report in this folder."""
    result = folder / _RESULT
    earlier = read_json(result)
    if earlier is None:
        return set()
    if earlier.get("schema") != REPORT_SCHEMA:
        message = (
            f"{result} is not from a report and is not overwritten. Use another folder."
        )
        raise StoreError(message)
    listed = earlier.get("files", [])
    paths = [path for name in (_FIGURES, _TABLES) for path in folder.glob(f"{name}/*")]
    names = [f"{path.parent.name}/{path.name}" for path in paths]
    return {name for name in names if name in listed}


def _remove(folder: Path, names: set[str]) -> None:
    """Remove what an earlier report has written, and folders that it leaves empty."""
    for name in names:
        path = folder / name
        try:
            path.unlink(missing_ok=True)
            if path.parent.is_dir() and not any(path.parent.iterdir()):
                path.parent.rmdir()
        except OSError as error:
            raise store_error(path, error, _ELSEWHERE) from error


def read_report(notebook: Path) -> dict[str, Any]:
    """Return the result stored in the outputs of a saved notebook."""
    content = nbformat.read(notebook, as_version=4)
    for cell in reversed(content.cells):
        for output in cell.get("outputs", []):
            report = output.get("data", {}).get(REPORT_MIME)
            if report is not None:
                return report
    # The error of an interrupted study names the command that reports it.
    tracebacks = "\n".join(
        line
        for cell in content.cells
        for output in cell.get("outputs", [])
        for line in output.get("traceback", [])
    )
    study = re.search(r"nbkit report ([\w-]+)", tracebacks)
    message = (
        f"{notebook} contains no report. Run all cells of the notebook, or report the "
        f"finished runs with `nbkit report {study[1] if study else 'STUDY'}`."
    )
    raise StoreError(message)
