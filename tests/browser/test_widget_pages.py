"""Widgets in a page without a kernel: the test says what the kernel would."""

from __future__ import annotations

import datetime
import json

import pytest
from playwright.sync_api import expect

import nbkit
from nbkit.live.run import LiveRun
from nbkit.statistics.quantities import figures
from nbkit.widgets.table import RunTable
from nbkit.widgets.view import RunView
from tests.widgets.stored_run import WrittenRun, step

_NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_OPEN = """async code => {
  const url = URL.createObjectURL(new Blob([code], {type: 'text/javascript'}));
  const widget = (await import(url)).default;
  const hears = new Set();
  const model = {
    get: () => 'a-run',
    on: (_, hear) => hears.add(hear),
    off: (_, hear) => hears.delete(hear),
    send: message => sent.push(message),
  };
  window.sent = [];
  window.tell = message => hears.forEach(hear => hear(message));
  widget.initialize?.({model});
  widget.render({model, el: document.body});
}"""


@pytest.fixture
def show(page):
    """Return a way to show a widget; its page has ``tell``."""

    def show_in(widget: type[RunTable] | type[RunView]):
        visitor = page("about:blank")
        visitor.clock.install(time=_NOW - datetime.timedelta(hours=1))
        visitor.clock.pause_at(_NOW)
        visitor.evaluate(_OPEN, widget._esm)
        return visitor

    return show_in


@pytest.fixture
def run(tmp_path, monkeypatch) -> nbkit.Run:
    """Return a run under way."""
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    written = WrittenRun(tmp_path)
    written.append(step(1))
    return written.run


def test_the_running_time_is_by_the_kernels_clock_and_labels_are_whole(show, run):
    live = LiveRun(run)
    live.read()
    values = live.snapshot()
    values["head"]["runs_since"] = 1_600_000_000.0
    large = [[1, -1.5e7, 1.792e12, 1e12], [2, -1.5e7, 1.792e12, 1e12]]
    values["series"]["flops"] = large
    values["curves"].append("flops")
    visitor = show(RunView)
    visitor.add_style_tag(content=RunView._css)

    at = 1_600_000_030.0
    told = {"kind": "all", "number": 0, "at": at, "values": values}
    visitor.evaluate("message => tell(message)", told)

    words = visitor.locator(".nbkv-words")
    assert "running for 30 s" in words.text_content()
    visitor.clock.run_for(5_000)
    assert "running for 35 s" in words.text_content()
    # Whole labels: a digit or a sign that is cut off makes another number.
    labels = visitor.locator(".nbkv-chart", has_text="flops").locator("text")
    texts = labels.all_text_contents()
    assert "1e+12" in texts
    assert "step 1" in texts
    assert all(labels.evaluate_all("all => all.map(one => one.getBBox().x >= 0)"))


def test_numbers_of_page_and_kernel_have_the_same_figures(show, run):
    live = LiveRun(run)
    live.read()
    values = live.snapshot()
    numbers = [0, 7, -7.25, 0.6931471, 12.345678, 9.99996, 9999.96, 123456.7, 1e-4]
    numbers += [0.00012345, -0.00001234, 1.5e-9, 1e7, 1.7924e12, 4096, 0.1, 1 / 3]
    values["numbers"]["logged"] = {f"n{n}": it for n, it in enumerate(numbers)}
    visitor = show(RunView)

    told = {"kind": "all", "number": 0, "at": 0, "values": values}
    visitor.evaluate("message => tell(message)", told)

    shown = visitor.locator(".nbkv-logged dd").all_text_contents()
    assert shown == [figures(number) for number in numbers]

    facts = visitor.locator(".nbkv-facts").first
    assert "Images/s" in facts.text_content()
    # A function that logs no rate has none, and not an unknown one.
    values["head"]["task"] = "function"
    values["numbers"] |= {"images_per_second": None, "measured": None}
    visitor.evaluate("message => tell(message)", {**told, "to": "a view"})
    assert "Images/s" not in facts.text_content()


def tell_rows(visitor, at: float) -> None:
    """Tell a table of one run, without its numbers."""
    row = {"run_id": "a", "name": "a run", "state": "running", "damage": None}
    rows = [{**row, "started_at": None}]
    told = {"kind": "rows", "at": at, "rows": rows, "numbers": {}}
    visitor.evaluate("message => tell(message)", told)


def test_table_follows_runs_under_way_by_the_server(page):
    visitor = page("about:blank")
    visitor.clock.install(time=_NOW)
    config = {"baseUrl": "/hub/", "token": "secret"}
    asked = []

    def answer(route):
        asked.append(route.request)
        if route.request.url.endswith("/hub/nbkit/api/runs"):
            run = {"run_id": "a", "state": states[0], "images_per_second": 12.0}
            route.fulfill(json={"runs": [{**run, "loss": 0.5, "nonfinite": None}]})
        else:
            text = f'<script id="jupyter-config-data">{json.dumps(config)}</script>'
            route.fulfill(body=f"<!doctype html>{text}", content_type="text/html")

    states = ["running"]
    visitor.route("**/*", answer)
    visitor.goto("http://lab.test/")
    visitor.evaluate(_OPEN, RunTable._esm)
    tell_rows(visitor, 1.0)
    row = visitor.locator("tbody tr")
    numbers = {"at": 1.0, "state": "starting", "duration_seconds": 7}
    told = {"kind": "numbers", "numbers": {"a": numbers}}
    visitor.evaluate("message => tell(message)", told)
    visitor.evaluate("sent.length = 0")

    visitor.clock.run_for(5_000)
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("12")
    assert asked[-1].headers["authorization"] == "token secret"
    # Of a new state, the kernel has the numbers; of one that lasts, it is not asked.
    assert visitor.evaluate("sent.map(({kind}) => kind)") == ["numbers"]
    numbers = {"at": 2.0, "state": "running", "duration_seconds": 8}
    told = {"kind": "numbers", "numbers": {"a": numbers}}
    visitor.evaluate("message => tell(message)", told)
    visitor.clock.run_for(15_000)
    expect(row).to_contain_text("23 s")
    states[0] = "finished"
    visitor.clock.run_for(5_000)
    expect(row.locator("[data-state=finished]")).to_have_class("nbkv-sign")
    assert visitor.evaluate("sent.map(({kind}) => kind)") == ["numbers", "numbers"]
    before = len(asked)
    visitor.clock.run_for(20_000)
    assert len(asked) == before


def test_numbers_that_come_too_late_are_asked_for_again(show):
    visitor = show(RunTable)
    asked = "sent.filter(({kind}) => kind === 'numbers').length"
    tell_rows(visitor, 1.0)
    tell_rows(visitor, 5.0)
    before = visitor.evaluate(asked)

    late = {"kind": "numbers", "numbers": {"a": {"at": 2.0, "loss": 7}}}
    visitor.evaluate("message => tell(message)", late)

    assert visitor.evaluate(asked) == before + 1


def test_a_table_that_reads_is_not_called_busy(show):
    visitor = show(RunTable)
    tell_rows(visitor, 1.0)
    alert = visitor.get_by_role("alert")
    refresh = visitor.get_by_role("button", name="Refresh")

    refresh.click()
    visitor.evaluate("tell({kind: 'heard'})")
    visitor.clock.run_for(3_000)
    assert alert.text_content() == ""
    assert visitor.get_by_role("status").text_content() == "reading…"
    visitor.evaluate("tell({kind: 'refused', why: 'no disk'})")
    assert alert.text_content() == "no disk"
    assert "1 to 1 of 1" in visitor.get_by_role("status").text_content()

    refresh.click()
    visitor.clock.run_for(3_000)
    assert "does not respond" in alert.text_content()
