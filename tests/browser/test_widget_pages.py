"""Widgets in a page without a kernel: the test says what the kernel would."""

from __future__ import annotations

import datetime
import json
import random

import pytest
from playwright.sync_api import expect

import nbkit
from nbkit.live.run import LiveRun
from nbkit.statistics.quantities import figures
from nbkit.store.metrics import to_json_line
from nbkit.widgets.form_panel import FormPanel
from nbkit.widgets.table import RunTable
from nbkit.widgets.view import RunView
from tests.telemetry.traces import replay
from tests.widgets.form_threads import wait_for_form_threads
from tests.widgets.stored_run import WrittenRun, step

_NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_OPEN = """async code => {
  const url = URL.createObjectURL(new Blob([code], {type: 'text/javascript'}));
  const widget = (await import(url)).default;
  const hears = new Set();
  const model = {
    get: name => ({run_id: 'a-run', ...window.state})[name],
    on: (_, hear) => hears.add(hear),
    off: (_, hear) => hears.delete(hear),
    send: message => {
      if (window.isRestarted) {
        throw new Error('disposed');
      }
      sent.push(message);
    },
  };
  window.sent = [];
  window.tell = message => hears.forEach(hear => hear(message));
  widget.initialize?.({model});
  widget.render({model, el: document.body});
}"""


@pytest.fixture
def show(page):
    """Return a way to show a widget; its page has ``tell``, and what ``lab`` does."""

    def show_in(
        widget: type[RunTable] | type[RunView] | type[FormPanel], lab: str = "0"
    ):
        visitor = page("about:blank")
        visitor.clock.install(time=_NOW - datetime.timedelta(hours=1))
        visitor.clock.pause_at(_NOW)
        visitor.evaluate(lab)
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
    starting = {"head": {**values["head"], "state": "starting", "ran_seconds": 60}}
    told = {"kind": "change", "number": 1, "at": at + 6, "values": starting}
    visitor.evaluate("message => tell(message)", told)
    assert "started 36 s ago" in words.text_content()
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


def tell_all(visitor, values: dict) -> None:
    """Tell a view everything, as a kernel that it has asked."""
    told = {"kind": "all", "number": 0, "at": 0, "values": values}
    visitor.evaluate("message => tell({...message, to: sent.at(-1).view})", told)
    visitor.clock.run_for(100)  # it draws before the next paint


def tell_rows(visitor, at: float, *ids: str) -> None:
    """Tell a table of runs, one unless they are named, without their numbers."""
    row = {"state": "running", "damage": None, "started_at": None}
    rows = [{**row, "run_id": id_, "name": f"the run {id_}"} for id_ in ids or ("a",)]
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
            run |= {"loss": 0.5, "nonfinite": None}
            runs = [{**run, "run_id": run_id} for run_id in newer]
            route.fulfill(json={"runs": [*runs, run]})
        else:
            text = f'<script id="jupyter-config-data">{json.dumps(config)}</script>'
            route.fulfill(body=f"<!doctype html>{text}", content_type="text/html")

    states, newer = ["running"], []
    visitor.route("**/*", answer)
    visitor.goto("http://lab.test/")
    visitor.clock.pause_at(_NOW + datetime.timedelta(hours=1))
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
    tell_rows(visitor, 2.0)
    numbers = {"at": 2.0, "state": "running", "duration_seconds": 8}
    told = {"kind": "numbers", "numbers": {"a": numbers}}
    visitor.evaluate("message => tell(message)", told)
    # The table may be out of sight before the server is asked.
    visitor.evaluate("document.body.hidden = true")
    visitor.clock.run_for(10_000)
    visitor.evaluate("document.body.hidden = false")
    visitor.clock.run_for(5_000)
    expect(row).to_contain_text("23 s")
    states[0] = "finished"
    visitor.clock.run_for(5_000)
    expect(row.locator("[data-state=finished]")).to_have_class("nbkv-sign")
    assert visitor.evaluate("sent.map(({kind}) => kind)") == ["numbers"] * 3
    # Of runs that are launched while none is under way, less often.
    status = visitor.get_by_role("status")
    newer += ["20260101-000000000-b", "20250101-000000000-imported"]
    numbers = {"at": _NOW.timestamp(), "state": "finished", "duration_seconds": 8}
    told = {"kind": "numbers", "numbers": {"a": numbers}}
    tell_rows(visitor, _NOW.timestamp() - 1)
    visitor.evaluate("message => tell(message)", told)
    before = len(asked)
    visitor.clock.run_for(30_000)
    expect(status).to_contain_text("1 newer run")
    assert len(asked) == before + 1
    tell_rows(visitor, _NOW.timestamp() + 1)
    expect(status).not_to_contain_text("newer")


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


def test_ticked_runs_of_a_table_are_compared_where_lab_can_draw_them(show):
    visitor = show(RunTable)
    tell_rows(visitor, 1.0, "a", "b")
    compare = ".nbkv-runs button:text('Compare curves')"
    expect(visitor.locator(compare)).to_be_hidden()
    expect(visitor.get_by_role("checkbox")).to_have_count(0)

    visitor = show(
        RunTable,
        """document.addEventListener('nbkit:compare', event => {
          event.preventDefault();
          window.compared = event.detail.runs;
        })""",
    )
    tell_rows(visitor, 1.0, "a", "b", "c")
    visitor.get_by_label("Compare the run b, b").check()
    expect(visitor.locator(compare)).to_be_disabled()
    visitor.get_by_label("Compare the run a, a").check()
    tell_rows(visitor, 2.0, "a", "b", "c")
    visitor.locator(compare).click()

    named = [{"run_id": each, "name": f"the run {each}"} for each in "ba"]
    assert visitor.evaluate("compared") == named


def test_axis_labels_of_near_values_differ(show, run):
    live = LiveRun(run)
    live.read()
    values = live.snapshot()
    points = [[n, *[2511.2 + n / 250] * 3] for n in range(200)]
    values["series"]["loss"] = points
    visitor = show(RunView)
    visitor.add_style_tag(content=RunView._css)

    tell_all(visitor, values)

    labels = visitor.locator(".nbkv-chart", has_text="Loss").locator("text")
    texts = labels.all_text_contents()
    assert {"2,511.5", "2,512"} <= {*texts}


def test_axis_has_two_ticks_in_any_range(page):
    numbers = random.Random(1)
    ranges = []
    for _ in range(3000):
        low = numbers.uniform(-1, 1) * 10 ** numbers.uniform(-9, 9)
        high = low + abs(low) * 10 ** numbers.uniform(-8, 8)
        ranges.append([low, high, numbers.randint(1, 6), numbers.random() < 0.2])
    # Not told apart by twelve digits, nor by counting in steps of one.
    ranges.append([0.3, 0.3 + 2**-54, 5, False])
    code = f"{RunView._esm}\nwindow.ticksBetween = ticksBetween;"
    visitor = page("about:blank")
    visitor.add_script_tag(content=code, type="module")
    visitor.wait_for_function("Boolean(window.ticksBetween)")

    found = visitor.evaluate("all => all.map(it => ticksBetween(...it))", ranges)

    assert len(found) == len(ranges)
    for (low, high, count, _), ticks in zip(ranges[:-1], found, strict=False):
        assert 2 <= len({*ticks}) <= max(count, 8) + 2
        margin = 1e-9 * (high - low) + 1e-11 * max(abs(low), abs(high))
        assert low - margin <= min(ticks) < max(ticks) <= high + margin


def test_keys_move_a_cursor_whose_value_is_announced(show, run):
    live = LiveRun(run)
    live.read()
    values = live.snapshot()
    values["series"]["loss"] = [[n, n, n, n] for n in (1, 2, 3)]
    visitor = show(RunView)
    visitor.add_style_tag(content=RunView._css)
    tell_all(visitor, values)
    chart = visitor.locator(".nbkv-chart", has_text="Loss")
    spoken = chart.locator("[aria-live=polite]")

    chart.locator(".nbkv-plot").focus()
    for key, words in (
        ("ArrowRight", "step 1: 1"),
        ("ArrowRight", "step 2: 2"),
        ("ArrowLeft", "step 1: 1"),
        ("Escape", ""),
        ("ArrowLeft", "step 3: 3"),
    ):
        visitor.keyboard.press(key)
        assert spoken.text_content() == words


def test_a_resumed_run_has_a_gap_on_the_time_axis_alone(show, run):
    times = [(1, 0, 0), (2, 0, 1), (3, 1, 600.004), (4, 1, 601)]
    lines = [step(number, attempt, t=1e9 + t) for number, attempt, t in times]
    run.paths.metrics.write_text("".join(map(to_json_line, lines)))
    live = LiveRun(run)
    live.read()
    visitor = show(RunView)
    visitor.add_style_tag(content=RunView._css)
    tell_all(visitor, live.snapshot())
    line = visitor.locator(".nbkv-chart", has_text="Loss").locator(".nbkv-chart-line")
    assert line.get_attribute("d").count("M") == 1

    visitor.get_by_text("Chart options").click()
    visitor.get_by_label("x axis").select_option("time")
    visitor.clock.run_for(100)

    assert line.get_attribute("d").count("M") == 2


def test_only_curves_beyond_the_first_twelve_are_asked_for(show, run):
    values = {f"n{n:03}": n for n in range(110)}
    line = {"kind": "log", "attempt": 0, "step": 1, "values": values}
    with run.paths.metrics.open("a") as metrics:
        metrics.write(json.dumps(line) + "\n")
    live = LiveRun(run)
    live.read()
    visitor = show(RunView)
    tell_all(visitor, live.snapshot())

    # Loss and images/s are the first two.
    boxes = "document.querySelectorAll('.nbkv-menu-list input:not(:checked)')"
    visitor.evaluate(f"{boxes}.forEach(box => box.click())")

    asked = visitor.evaluate("sent.filter(({kind}) => kind === 'open').at(-1).curves")
    assert asked == [f"n{n:03}" for n in range(10, 100)]
    menu = visitor.locator(".nbkv-menu-box", has_text="n000")
    assert "10 further logged names are not shown" in menu.text_content()


def test_log_stays_where_it_is_read_until_another_is_chosen(show, run):
    live = LiveRun(run)
    live.read()
    visitor = show(RunView)
    visitor.add_style_tag(content=RunView._css)
    values = live.snapshot()
    values["head"] |= {"state": "failed", "cause": None}
    assert visitor.evaluate("sent.at(-1).stream") == "stdout"
    tell_all(visitor, {**values, "series": {}, "curves": []})
    assert visitor.evaluate("sent.at(-1).stream") == "stderr"
    options = visitor.get_by_text("Chart options")
    expect(options).to_be_hidden()
    tell_all(visitor, values)
    expect(options).to_be_visible()
    visitor.get_by_text("Log", exact=True).click()
    text = visitor.get_by_label("Log of")
    log = {"kind": "log", "open_line": "", "size_bytes": 9, "searched_bytes": 9}
    log |= {"lines": [f"line {n}" for n in range(500)]}

    def tell_log() -> float:
        visitor.evaluate("log => tell({...log, to: sent[0].view})", log)
        return text.evaluate("text => text.scrollTop")

    end = tell_log()
    assert end > 0
    text.evaluate("text => (text.scrollTop -= 1000)")
    assert tell_log() == end - 1000
    visitor.get_by_label("Rank").select_option("1")
    assert tell_log() == end


def test_zoom_asks_the_server_once_it_stays(page, run):
    live = LiveRun(run)
    live.read()
    values = live.snapshot()
    values["series"]["loss"] = [[n, 1, 1, 1] for n in range(2000)]
    visitor, asked = page("about:blank"), []
    visitor.clock.install(time=_NOW)

    def answer(route):
        if "/curve?" in route.request.url:
            asked.append(route.request.url)
            route.fulfill(json={"points": [[1000, 1, 1, 1]]})
        else:
            text = '<script id="jupyter-config-data">{"baseUrl": "/"}</script>'
            route.fulfill(body=f"<!doctype html>{text}", content_type="text/html")

    visitor.route("**/*", answer)
    visitor.goto("http://lab.test/")
    visitor.clock.pause_at(_NOW + datetime.timedelta(hours=1))
    visitor.evaluate(_OPEN, RunView._esm)
    visitor.add_style_tag(content=RunView._css)
    tell_all(visitor, values)

    visitor.locator(".nbkv-chart", has_text="Loss").locator(".nbkv-plot").focus()
    for _ in range(3):
        visitor.keyboard.press("+")
    with visitor.expect_response("**/curve?*"):
        visitor.clock.run_for(1_000)

    [url] = asked
    assert "first=874&last=1125" in url


def test_view_of_an_ended_run_sends_its_kernel_nothing(show, run):
    live = LiveRun(run)
    live.read()
    values = live.snapshot()
    values["head"] |= {"state": "finished", "is_final": True}
    visitor = show(RunView)
    tell_all(visitor, values)
    visitor.evaluate("sent.length = 0")

    visitor.locator(".nbkv").hover()
    for hidden in ("true", "false"):
        visitor.evaluate(f"document.body.hidden = {hidden}")
        visitor.clock.run_for(60_000)

    assert visitor.evaluate("sent") == []


def test_view_is_fed_by_labs_server_until_that_does_not_know_the_run(show, run):
    live = LiveRun(run)
    live.read()
    visitor = show(
        RunView,
        """document.addEventListener('nbkit:view', ({detail}) => {
          window.wishes = [];
          window.detail = detail;
          detail.model = {
            get: name => (name === 'run_id' ? detail.run_id : undefined),
            on: (_, hear) => (window.serve = hear),
            off: () => undefined,
            follow: isSeen => (window.isFollowed = isSeen),
            send: message => wishes.push(message.kind),
          };
        })""",
    )
    # The kernel shows the run to pages that cannot ask yet.
    told = {"kind": "all", "number": 0, "at": 0, "values": live.snapshot()}
    for _ in range(2):
        visitor.evaluate("message => tell(message)", told)
    visitor.clock.run_for(60_000)

    kinds = "sent.map(({kind, view}) => [kind, view])"
    assert visitor.evaluate(kinds) == [["close", ""]]
    assert visitor.evaluate("[isFollowed, wishes[0]]") == [True, "open"]
    visitor.evaluate("document.body.hidden = true")
    visitor.clock.run_for(1_000)
    assert visitor.evaluate("isFollowed") is False

    visitor.evaluate("document.body.hidden = false")
    visitor.evaluate("detail.onGone()")
    assert visitor.evaluate("wishes.at(-1)") == "close"
    assert visitor.evaluate("sent[1].kind") == "open"
    tell_all(visitor, live.snapshot())
    assert visitor.locator(".nbkv-state").all_text_contents() == ["running"]


def test_saved_form_without_a_kernel_says_nothing_of_free_gpus(show, monkeypatch):
    monkeypatch.setenv("NBKIT_GPU_SOURCE", replay("one-gpu"))
    form = nbkit.ExperimentForm()
    wait_for_form_threads()
    names = ("sections", "presets", "entered", "checked", "gpus", "partitions", "note")
    state = {name: getattr(form.panel, name) for name in names}
    form.close_all()
    visitor = show(FormPanel, f"window.state = {json.dumps(state)}")
    visitor.add_style_tag(content=FormPanel._css)
    free = visitor.get_by_text("0 of 1 GPUs free")

    expect(free).to_be_hidden()
    visitor.evaluate("tell({})")
    expect(free).to_be_visible()


def test_kernel_that_cannot_stop_a_run_says_why(show, run):
    live = LiveRun(run)
    live.read()
    visitor = show(RunView)
    tell_all(visitor, live.snapshot())
    alert = visitor.get_by_role("alert")

    for restarted, words in (
        (False, "The kernel does not respond: it is running a cell"),
        (True, "the kernel of this view was restarted. Run the cell again"),
    ):
        visitor.evaluate("it => (window.isRestarted = it)", restarted)
        visitor.get_by_role("button", name="Stop", exact=True).click()
        visitor.get_by_role("button", name="Stop the run").click()
        visitor.clock.run_for(3_000)
        expect(alert).to_contain_text(words)
        expect(alert).to_contain_text("nbkit's sidebar")
