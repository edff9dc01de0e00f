"""`RunTable`: runs in a table that filters and sorts; a click shows one of them.

All rows are sent at once, and the page filters, sorts and turns pages by itself, also
while the kernel is busy. What has to be read from each run's metrics is asked for a
page at a time.
"""

from __future__ import annotations

import datetime
import html
from collections.abc import Sequence
from typing import Any

import anywidget
import ipywidgets
from IPython.display import display

from nbkit.analysis.live.rows import run_numbers, run_rows
from nbkit.errors import NbkitError
from nbkit.launch.run import Run
from nbkit.study.wording import UNKNOWN, rate
from nbkit.widgets.display import view_of
from nbkit.widgets.view import heard_while_busy, static_text

__all__ = ["RunTable", "show_table"]

_SAVED_ROWS = 20
_MOST_ASKED = 200
"""A page asks for the numbers of so many runs at once, or fewer."""

_COLUMNS = ("Name", "State", "Ranks", "Started", "Duration", "Images/s", "Loss", "Run")


class RunTable(anywidget.AnyWidget):
    """A table of runs.

    Parameters
    ----------
    runs
        The runs, in their order.
    rows
        What `nbkit.analysis.live.rows.run_rows` says of them.
    below
        Where the view of a run that is clicked is put.
    """

    _esm = static_text("page.js", "view_charts.js", "table.js")
    _css = static_text("view.css", "table.css")

    def __init__(
        self, runs: Sequence[Run], rows: list[dict[str, Any]], below: ipywidgets.Box
    ) -> None:
        super().__init__()
        self._runs = {run.run_id: run for run in runs}
        self._rows = rows
        self._below = below
        self.on_msg(self._on_message)
        heard_while_busy(self)

    def _on_message(self, _: Any, message: dict[str, Any], __: Any) -> None:
        try:
            self._answer(message)
        except (NbkitError, OSError) as error:
            self.send({"kind": "refused", "why": str(error)})
        heard_while_busy(self)

    def _answer(self, message: dict[str, Any]) -> None:
        if message["kind"] == "open":
            self.send({"kind": "rows", "rows": self._rows})
        elif message["kind"] == "numbers":
            ids = message["runs"][:_MOST_ASKED]
            numbers = {id_: run_numbers(self._runs[id_]) for id_ in ids}
            self.send({"kind": "numbers", "numbers": numbers})
        elif message["kind"] == "show":
            view = view_of(self._runs[message["run"]])
            self._below.children = (view,)
            view.announce()
            self.send({"kind": "shown", "run": message["run"]})


def show_table(runs: Sequence[Run], *, with_widgets: bool) -> None:
    """Show runs: where there are widgets a table, and below it what is saved."""
    rows = run_rows(runs)
    if with_widgets:
        below = ipywidgets.VBox()
        display(ipywidgets.VBox([RunTable(runs, rows, below), below]))
    display(_saved(runs, rows), raw=True)


def _saved(runs: Sequence[Run], rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return the first rows as HTML and as text."""
    handles = {run.run_id: run for run in runs}
    shown = rows[:_SAVED_ROWS]
    cells = [_cells(row, run_numbers(handles[row["run_id"]])) for row in shown]
    more = len(rows) - len(shown)
    note = f"and {more:,} more" if more else ""
    if not rows:
        note = "No runs."
    head = "".join(
        f'<th scope="col" style="text-align:left">{name}</th>' for name in _COLUMNS
    )
    body = "".join(
        "<tr>"
        + "".join(f'<td style="text-align:left">{html.escape(c)}</td>' for c in line)
        + "</tr>"
        for line in cells
    )
    page = (
        f'<div class="nbkit-picture"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table><p>{note}</p></div>"
    )
    lines = [_COLUMNS, *cells]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return {"text/html": page, "text/plain": f"{text}\n{note}".rstrip()}


def _cells(row: dict[str, Any], numbers: dict[str, Any]) -> tuple[str, ...]:
    started, seconds, loss = row["started_at"], row["duration_seconds"], numbers["loss"]
    return (
        row["name"] or UNKNOWN,
        row["state"],
        UNKNOWN if numbers["gpus"] is None else str(numbers["gpus"]),
        UNKNOWN if started is None else _utc(started),
        UNKNOWN if seconds is None else f"{seconds:,.0f} s",
        rate(numbers["images_per_second"]),
        UNKNOWN if loss is None else f"{loss:,.4g}",
        row["run_id"],
    )


def _utc(time: float) -> str:
    moment = datetime.datetime.fromtimestamp(time, datetime.UTC)
    return f"{moment:%Y-%m-%d %H:%M} UTC"
