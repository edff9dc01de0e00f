"""A table of runs says of when it is, and is asked again by its button."""

from __future__ import annotations

import re
import shutil
import threading
from typing import Any

import pytest
from ipywidgets import VBox

import nbkit
from nbkit.launch.run import RunList
from nbkit.live.rows import ended_rate, run_numbers
from nbkit.live.run import LiveRun
from nbkit.store.metrics import to_json_line
from nbkit.store.progress import progress
from nbkit.store.record import RunState
from nbkit.widgets import table as table_module
from nbkit.widgets.picture import picture
from nbkit.widgets.table import RunTable, show_table
from nbkit.widgets.view import RunView
from tests.waiting import wait_until
from tests.widgets.messages import hear
from tests.widgets.stored_run import WrittenRun, step


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Return the one run of a store: 30 steps, of which ten are warm-up and slow."""
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    written = WrittenRun(tmp_path)
    for number in range(1, 31):
        # 100 images: 10, then 100, and at last 50 a second.
        slow = number <= 10
        seconds = 10.0 if slow else 1.0 if number <= 22 else 2.0
        written.append(step(number, warmup=slow, step_time_seconds=seconds))
    return written


@pytest.fixture
def asked(monkeypatch):
    """Return a way to ask a table as a page does; it returns the answer."""
    tables: list[RunTable] = []

    def ask(table: RunTable, **message: Any) -> dict[str, Any]:
        tables.append(table)
        answers: list[dict[str, Any]] = []
        monkeypatch.setattr(table, "send", answers.append)
        hear(table, **{"runs": [], **message})
        is_heard = {"kind": "heard"}
        found = wait_until(
            lambda: [it for it in answers if it != is_heard], "an answer"
        )
        return found[0]

    yield ask
    for table in tables:
        table.close()


def test_a_refresh_has_states_and_numbers_of_the_same_moment(written, asked):
    run_id = written.run.run_id
    table = RunTable(nbkit.runs(), VBox())
    first = asked(table, kind="open")
    assert [row["state"] for row in first["rows"]] == ["running"]
    written.append(step(31, loss=0.5))
    written.record("finished")

    again = asked(table, kind="refresh", runs=[run_id, "gone"])

    (row,), numbers = again["rows"], again["numbers"]
    assert again["at"] > first["at"]
    assert (row["state"], numbers[run_id]["state"]) == ("finished", "finished")
    assert numbers[run_id]["loss"] == 0.5
    assert numbers[run_id]["at"] >= again["at"]
    assert numbers["gone"] is None


def test_a_question_that_is_asked_again_while_runs_are_read_is_read_once(
    written, monkeypatch
):
    table = RunTable(nbkit.runs(), VBox())
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(table, "send", sent.append)
    read: list[str] = []
    go_on = threading.Event()

    def slow(run):
        read.append(run.run_id)
        go_on.wait()
        return run_numbers(run)

    monkeypatch.setattr(table_module, "run_numbers", slow)
    runs = [written.run.run_id]
    for kind in ("numbers", "numbers", "refresh"):
        hear(table, kind=kind, runs=runs)
    # Heard, also while it reads.
    assert [one["kind"] for one in sent] == ["heard"]
    wait_until(lambda: read, "a reading")
    assert len(read) == 1
    go_on.set()

    wait_until(lambda: len(sent) == 3, "both answers")
    assert {one["kind"] for one in sent} == {"heard", "numbers", "rows"}
    assert len(read) == 2
    hear(table, kind="numbers", runs=runs)
    wait_until(lambda: len(sent) == 4, "the answer to a later question")
    table.close()


def test_a_refresh_asks_the_question_again_and_a_slice_stays(written, asked):
    running = nbkit.runs(state="running")
    some = RunTable(running[:1], VBox())
    table = RunTable(running, VBox())
    written.record("finished")

    assert asked(table, kind="refresh")["rows"] == []
    assert [row["state"] for row in asked(some, kind="refresh")["rows"]] == ["finished"]
    shutil.rmtree(written.run.paths.root)
    assert asked(some, kind="refresh")["rows"] == []
    assert run_numbers(written.run) is None


@pytest.fixture
def displayed(monkeypatch) -> list[dict[str, str]]:
    """Return what is displayed from now on."""
    shown: list[dict[str, str]] = []
    monkeypatch.setattr(table_module, "display", lambda data, **_: shown.append(data))
    return shown


def test_a_page_without_widgets_is_told_what_is_missing(written, displayed):
    runs = nbkit.runs()

    show_table(runs, with_widgets=True)

    widget, _ = displayed
    assert "application/vnd.jupyter.widget-view+json" in widget
    assert widget["text/plain"].startswith("<table of 1 run: ")
    assert repr(RunTable(runs[:0], VBox())).startswith("<table of 0 runs: ")
    assert written.run.run_id in repr(RunView(written.run))


def test_the_rate_is_of_the_last_steps_and_then_the_summarys_everywhere(written):
    live = LiveRun(written.run)

    def shown():
        live.read()
        numbers = live.snapshot()["numbers"]
        in_view = (numbers["measured"] or {}).get("images_per_second")
        in_list = run_numbers(written.run)["images_per_second"]
        return in_view or numbers["images_per_second"], in_list

    # Of 20 measured steps, twelve take a second and eight two.
    assert shown() == (71.43, 71.43)
    assert live.snapshot()["numbers"]["rate_steps"] == 20
    assert progress(written.run.paths.metrics)["images_per_second"] == 71.43
    said = picture(live)["text/plain"]
    assert "Images/s over the last 20 steps: 71.4" in said

    written.append(*(step(n, step_time_seconds=2.0) for n in range(31, 35)))
    assert shown() == (62.5, 62.5)

    written.record("finished")
    rate = written.run.summary.images_per_second
    assert rate == 2400 / (12 + 24)
    assert shown() == (rate, rate)
    # Also above the curve, whose last step has another.
    assert f"Images/s: {rate:.4g}</figcaption>" in picture(live)["text/html"]


def test_during_warm_up_the_rate_is_unknown(tmp_path):
    written = WrittenRun(tmp_path)
    written.append(step(1, warmup=True), step(2, warmup=True))
    live = LiveRun(written.run)
    live.read()

    assert live.snapshot()["numbers"]["images_per_second"] is None
    assert live.snapshot()["numbers"]["seconds_left"] == 998
    assert run_numbers(written.run)["images_per_second"] is None
    written.record("stopped")
    assert run_numbers(written.run)["images_per_second"] is None


def test_the_saved_table_says_of_when_it_is_and_what_its_numbers_are(
    written, displayed
):
    written.record("finished")

    show_table(nbkit.runs(), with_widgets=False)

    (bundle,) = displayed
    for text in bundle.values():
        assert re.search(r"As of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\.", text)
        assert "images per second over the measured steps, without warm-up" in text
    cells = bundle["text/plain"].splitlines()[1].split()
    assert cells[:3] == ["written", "finished", "2"]
    assert "71.43" in cells


def test_direction_characters_of_a_name_are_shown(written, asked, displayed):
    written.record("finished", name="a \u202eevil\u202c")
    live = LiveRun(written.run)
    live.read()

    show_table(nbkit.runs(), with_widgets=False)
    (row,) = asked(RunTable(nbkit.runs(), VBox()), kind="open")["rows"]

    name = r"a \u202eevil\u202c"
    assert row["name"] == live.snapshot()["head"]["name"] == name
    assert all(name in text for text in displayed[0].values())


def test_a_run_of_very_many_steps_holds_no_cell_up(written):
    written.append(*map(step, range(31, 5000)))
    written.record("finished")

    assert run_numbers(written.run, 0)["images_per_second"] is None
    rate = written.run.summary.images_per_second
    assert run_numbers(written.run)["images_per_second"] == rate
    # Read once, it is known.
    assert run_numbers(written.run, 0)["images_per_second"] == rate


def test_a_table_says_why_a_run_cannot_be_shown(written, asked):
    run = written.run
    table = RunTable(RunList([run]), VBox())
    run.paths.config.write_text("{")

    answer = asked(table, kind="show", run=run.run_id)

    assert answer["kind"] == "refused"
    assert str(run.paths.config) in answer["why"]


def test_the_rate_of_a_long_run_is_read_on_whatever_else_is_asked(tmp_path):
    lines = "".join(to_json_line(step(number)) for number in range(1, 4000))
    runs = [WrittenRun(tmp_path / str(number)).run for number in range(10)]
    for run in runs:
        run.paths.metrics.write_text(lines)

    def rates():
        first = ended_rate(runs[0], RunState.FINISHED, 1e-9)
        return first, [ended_rate(run, RunState.FINISHED, 0.0) for run in runs[1:]]

    assert {"images_per_second": 100.0} in [rates()[0] for _ in range(8)]
