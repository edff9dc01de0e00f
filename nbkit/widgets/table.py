"""`RunTable`: runs in a table that filters and sorts; a click shows one of them.

All rows are sent in one message, and the page filters, sorts and turns pages by itself,
also while the kernel is busy. Values that must be read from each run are requested one
page at a time. The server, where it is nbkit's, too, says how runs under way go on and
how many are newer; *Refresh* asks the kernel for all of them.
"""

from __future__ import annotations

import datetime
import html
import threading
import time
import traceback
from typing import Any

import anywidget
import ipywidgets
from IPython.display import display

from nbkit.errors import NbkitError
from nbkit.launch.run import RunList
from nbkit.live.browser_part import page_module, static_text
from nbkit.live.rows import (
    IMAGES_PER_SECOND,
    run_numbers,
    run_rows,
    state_words,
)
from nbkit.live.running_time import RUNNING_TIME
from nbkit.statistics.quantities import UNKNOWN, elapsed, figures
from nbkit.visible import visible
from nbkit.widgets.picture import NO_LOST_WIDGET
from nbkit.widgets.shown_runs import view_of

_SAVED_ROWS = 20
_SAVED_SECONDS = 2.0
"""Runs of a million steps delay a cell by no more than this."""
_MOST_ASKED = 200
"""A page asks for the numbers of at most so many runs in one message."""

_COLUMNS = ("Name", "State", "Ranks", "Started", "Duration", "Images/s", "Loss", "Run")


class RunTable(anywidget.AnyWidget):
    """A table of runs."""

    _esm = page_module("view_numbers.js") + static_text(
        "table.js", package="nbkit.widgets"
    )
    _css = static_text("view.css") + static_text("table.css", package="nbkit.widgets")

    def __repr__(self) -> str:
        count = f"{len(self._list)} run{'s'[: len(self._list) != 1]}"
        return f"<table of {count}: shown while its kernel runs>"

    def __init__(self, runs: RunList, below: ipywidgets.Box) -> None:
        super().__init__()
        self._list = runs
        self._runs = {run.run_id: run for run in runs}
        self._below = below
        self._asked: list[dict[str, Any]] = []
        """Questions whose answers are on the way."""
        self._reading = threading.Lock()
        """Held while numbers are read: a second reading would begin at the start."""
        self.on_msg(self._on_message)

    def _on_message(self, _: Any, message: dict[str, Any], __: Any) -> None:
        if message["kind"] == "show":
            self._send_if_open(self._answer(message))
            return
        if message["kind"] == "refresh":
            # The page learns that the kernel responds, however long it reads.
            self._send_if_open({"kind": "heard"})
        if message not in self._asked:  # the answer on the way is for this one, too
            self._asked.append(message)
            # Reading a run of a million steps takes seconds: the kernel continues.
            what = (message,)
            threading.Thread(target=self._read, args=what, daemon=True).start()

    def _read(self, message: dict[str, Any]) -> None:
        answer = self._answer(message)
        self._asked.remove(message)
        self._send_if_open(answer)

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._reply(message)
        except (NbkitError, OSError) as error:
            return {"kind": "refused", "why": str(error)}
        except Exception as error:  # noqa: BLE001 - the page shows it
            why = traceback.format_exc(limit=-3) or str(error)
            return {"kind": "refused", "why": why}

    def _send_if_open(self, message: dict[str, Any]) -> None:
        if self.comm is not None:
            self.send(message)

    def _reply(self, message: dict[str, Any]) -> dict[str, Any]:
        """Show a run, or return the runs of now, numbers of some of them, or both."""
        if message["kind"] == "show":
            view = view_of(self._runs[message["run"]])
            self._below.children = (view,)
            view.announce()
            return {"kind": "shown", "run": message["run"]}
        answer: dict[str, Any] = {"kind": "numbers"}
        if message["kind"] != "numbers":
            self._list = self._list.again()
            self._runs = {run.run_id: run for run in self._list}
            rows = {"at": time.time(), "rows": run_rows(self._list)}
            answer = {"kind": "rows", **rows}
        ids = message["runs"][:_MOST_ASKED]
        runs = {run_id: self._runs.get(run_id) for run_id in ids}
        with self._reading:
            numbers = {name: run and run_numbers(run) for name, run in runs.items()}
        return {**answer, "numbers": numbers}


def show_table(runs: RunList, *, with_widgets: bool) -> None:
    """Show runs: where there are widgets a table, and below it what is saved."""
    if with_widgets:
        below = ipywidgets.VBox()
        table = RunTable(runs, below)
        bundle: Any = ipywidgets.VBox([table, below])._repr_mimebundle_()
        # The text is all that is left of it in a notebook of others.
        display({**bundle, "text/plain": repr(table)}, raw=True)
    display(_static_rows(runs), raw=True)


def _static_rows(runs: RunList) -> dict[str, str]:
    """Return the first rows as HTML and as text."""
    deadline = time.monotonic() + _SAVED_SECONDS
    now = time.time()
    handles = {run.run_id: run for run in runs}
    rows = run_rows(runs)
    cells: list[tuple[str, ...]] = []
    for row in rows[:_SAVED_ROWS]:
        left_seconds = max(0.0, deadline - time.monotonic())
        numbers = run_numbers(handles[row["run_id"]], left_seconds)
        if numbers is not None:
            cells.append(_cells({**row, **numbers}))
    more = len(rows) - len(rows[:_SAVED_ROWS])
    note = f"As of {_utc(now, seconds=True)}" + (f"; {more:,} more" if more else "")
    if not rows:
        note = f"No runs. {note}"
    note = f"{note}. Images/s: {IMAGES_PER_SECOND}. Duration: {RUNNING_TIME}."
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
        f'{NO_LOST_WIDGET}<div class="nbkit-picture"><table><thead><tr>{head}</tr>'
        f"</thead><tbody>{body}</tbody></table><p>{note}</p></div>"
    )
    lines = [_COLUMNS, *cells]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    return {
        "text/html": page,
        "text/plain": visible(f"{text}\n{note}".rstrip(), lines=True),
    }


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    started = row["started_at"]
    return (
        visible(row["name"] or UNKNOWN),
        state_words(row),
        UNKNOWN if row["gpus"] is None else str(row["gpus"]),
        UNKNOWN if started is None else _utc(started),
        elapsed(row["duration_seconds"]),
        figures(row["images_per_second"]),
        figures(row["loss"]),
        row["run_id"],
    )


def _utc(time: float, *, seconds: bool = False) -> str:
    moment = datetime.datetime.fromtimestamp(time, datetime.UTC)
    return (
        f"{moment:%Y-%m-%d %H:%M:%S} UTC" if seconds else f"{moment:%Y-%m-%d %H:%M} UTC"
    )
