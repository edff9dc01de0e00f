"""A run has a page of its own in Lab, and a study's report one: without a kernel."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from nbkit.reading import LINE_BYTES
from nbkit.statistics.quantities import figures
from nbkit.store.metrics import to_json_line
from nbkit.store.record import RunState
from tests.browser.sidebar import open_panel, until
from tests.browser.test_live_view import AXE, grows, has_every_step_once
from tests.browser.test_looks import change_theme
from tests.server.stored_runs import store_run
from tests.telemetry.traces import replay
from tests.waiting import wait_until
from tests.widgets.stored_run import step

RUN_ID = "20200101-000000-run-aaaa"
STEPS = 3000
WEIGHT = 0.9


def tab_of(visitor: Page, name: str) -> Locator:
    return visitor.locator("#jp-main-dock-panel").get_by_role("tab", name=name)


def is_saved(server: Any, name: str) -> bool:
    """Return whether Lab has saved a layout with a tab: it does so now and then."""
    folder = server.folder / "workspaces"
    files = folder.iterdir() if folder.exists() else ()
    return any(name in file.read_text() for file in files)


def finds_nothing(visitor: Page, part: str) -> None:
    visitor.evaluate(AXE.read_text())
    found = visitor.evaluate("part => axe.run(part)", part)
    assert [(each["id"], each["help"]) for each in found["violations"]] == []


def copies_its_path(visitor: Page, row: Locator, path: Path) -> None:
    """Copy the path of a run, which is outside of what Lab shows."""
    dialog = visitor.locator(".jp-Dialog")
    copy = row.get_by_role("button", name="Copy the path of a long run")
    visitor.context.grant_permissions(["clipboard-read"])
    copy.click()
    text = visitor.evaluate("navigator.clipboard.readText()")
    assert text == str(path)
    visitor.evaluate("document.execCommand = () => false")
    copy.click()
    expect(dialog).to_contain_text("The browser blocked the copy")
    expect(dialog).to_contain_text(text)
    dialog.get_by_role("button").last.click()


def stops_from_its_row(visitor: Page, row: Locator) -> None:
    dialog = visitor.locator(".jp-Dialog")
    stop = row.get_by_role("button", name="Stop the run a long run")
    # Its row may be a moment late, and only a run under way saves a checkpoint.
    expect(row.locator(".nbk-state.nbk-mod-running")).to_have_count(1)
    stop.click()
    expect(dialog).to_contain_text("Stop the run a long run?")
    expect(dialog).to_contain_text("saves a checkpoint after its next step")
    dialog.get_by_role("button", name="Stop Run").click()
    expect(row).to_contain_text("stopped")
    expect(stop).to_have_count(0)


def test_a_run_is_followed_stopped_and_resumed_in_its_row_and_on_its_page(
    shared_lab, page, run
):
    server = shared_lab(replay("no-gpu"))
    visitor = page(server.address())
    row = open_panel(visitor).locator(".nbk-run", has_text="a long run")
    tab = tab_of(visitor, "a long run")
    view = visitor.locator(".nbkv-page")
    started = run(server)
    expect(row).to_contain_text("/1,000,000")
    expect(row).to_contain_text("images/s")
    expect(row).to_contain_text("loss")
    copies_its_path(visitor, row, started.paths.root)

    row.get_by_role("button", name="a long run", exact=True).click()
    expect(tab).to_have_attribute("aria-selected", "true")
    expect(view.get_by_role("heading", name="a long run")).to_be_visible()
    grows(visitor, view)
    has_every_step_once(visitor, view)
    config = view.locator(".nbkv-config > div > dl")
    expect(config).to_contain_text("batch_size_per_gpu4")
    expect(config).not_to_contain_text("seed")
    finds_nothing(visitor, ".nbkv-page")
    row.get_by_role("button", name="a long run", exact=True).click()
    expect(tab).to_have_count(1)

    until(visitor, lambda: is_saved(server, "nbkit-run"), "a saved layout")
    visitor.reload()
    expect(tab).to_have_count(1)
    grows(visitor, view)

    stop = view.get_by_role("button", name="Stop", exact=True)
    stop.click()
    visitor.keyboard.press("Escape")
    expect(stop).to_be_focused()
    assert not started.paths.stop.exists()
    stop.click()
    view.get_by_role("button", name="Stop the run").click()
    expect(view.locator(".nbkv-state")).to_have_text("stopped")
    expect(view.locator(".nbkv-cause")).to_contain_text("stopped by user")
    assert started.state is RunState.STOPPED

    view.get_by_role("button", name="Resume", exact=True).click()
    view.get_by_role("button", name="Resume the run").click()
    expect(view.locator(".nbkv-about")).to_contain_text("attempt 2")
    expect(view.locator(".nbkv-state")).to_have_text("running")
    open_panel(visitor)
    stops_from_its_row(visitor, row)
    wait_until(lambda: started.state is RunState.STOPPED, "the end of the run")


def test_report_of_others_reaches_no_other_server(shared_lab, page):
    server = shared_lab(replay("no-gpu"))
    visitor = page("about:blank")
    picture = '<img alt="theirs" src="https://other.test/picture.png">'
    text = f"<!doctype html><title>Theirs</title><h1>Theirs</h1>{picture}"
    visitor.route(
        "**/nbkit/report/*", lambda it: it.fulfill(body=text, content_type="text/html")
    )
    asked = []
    visitor.route("https://other.test/**", lambda it: asked.append(it))
    visitor.goto(f"{server.address()}&nbkit-report=theirs")

    report = visitor.frame_locator(".jp-IFrame iframe")
    expect(report.get_by_role("heading", name="Theirs")).to_be_visible()
    expect(tab_of(visitor, "Theirs")).to_have_count(1)
    loaded = "it => it.complete && it.naturalWidth === 0"
    theirs = report.get_by_alt_text("theirs")
    until(visitor, lambda: theirs.evaluate(loaded), "the picture to be refused")
    assert asked == []


def test_a_link_opens_the_page_of_a_failed_run_and_text_of_runs_is_only_text(
    shared_lab, page
):
    server = shared_lab(replay("no-gpu"))
    folder = store_run(server.store, RUN_ID, "failed")
    record = json.loads((folder / "record.json").read_text())
    evil = "<img src=x onerror='window.evil=1'>"
    record |= {"name": evil, "cause": {"rank": 0, "message": evil, "traceback": evil}}
    (folder / "record.json").write_text(json.dumps(record))
    log = folder / "logs" / "0" / "0" / "stderr.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {n} {evil}\n" for n in range(1000)))

    link = f"{server.address()}&nbkit-run={RUN_ID}"
    visitor = page(link)
    view = visitor.locator(".nbkv-page")

    expect(view.locator(".nbkv-cause")).to_contain_text(evil)
    expect(view.get_by_role("heading", name=evil)).to_be_visible()
    expect(tab_of(visitor, evil)).to_have_attribute("aria-selected", "true")
    assert "nbkit-run" not in visitor.url
    text = view.get_by_label("Log of")
    expect(text).to_contain_text("line 999")
    expect(text).not_to_contain_text("line 499 ")
    view.get_by_role("button", name="Load earlier lines").click()
    expect(text).to_contain_text("line 0 ")
    assert visitor.evaluate("window.evil") is None

    # Lab gives a second tab a workspace of its own, and loads the address twice.
    second = visitor.context.new_page()
    second.goto(link)
    expect(second.locator(".nbkv-page .nbkv-cause")).to_contain_text(evil)
    second.close()

    visitor.goto(f"{link}b")
    gone = visitor.locator(".nbk-sentence")
    expect(gone).to_contain_text("is not in the store of this server")
    folder.rename(f"{folder}b")
    gone.get_by_role("button", name="Try Again").click()
    again = visitor.get_by_label(f"Run {RUN_ID}b", exact=True)
    expect(again.locator(".nbkv-cause")).to_contain_text(evil)
    expect(gone).to_have_count(0)


def run_id(name: str) -> str:
    return f"20200101-000000-{name}-aaaa"


def store_curves(server: Any, name: str, batch_size: int) -> list[float]:
    """Store a run; return its losses."""
    folder = store_run(server.store, run_id(name), batch_size_per_gpu=batch_size)
    record = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps(record | {"name": name}))
    losses = [40 / n + n % 7 / (50 * batch_size) + 0.001 for n in range(1, STEPS + 1)]
    lines = [step(n + 1, loss=loss, t=1e9 + n / 2) for n, loss in enumerate(losses)]
    for n in range(0, STEPS, 100):
        values = {f"logged_{k:02}": n / (k + 1) for k in range(14)}
        line = {"kind": "log", "attempt": 0, "step": n, "t": 1e9 + n / 2}
        lines.append({**line, "values": values, "beside_steps": True})
    (folder / "metrics.jsonl").write_text("".join(map(to_json_line, lines)))
    return losses


def heights(chart: Locator) -> dict[str, float]:
    """Return where the labels of the y axis are."""
    return chart.locator(".nbkv-plot > svg > text[text-anchor=end]").evaluate_all(
        """all => Object.fromEntries(
          all.map(it => [it.textContent, Number(it.getAttribute('y'))]))"""
    )


def lowest_and_fence(points: list[list[float]]) -> tuple[float, float]:
    """Return the lowest value, and 1.5 interquartile ranges of logarithms above Q3."""
    ends = sorted(math.log10(end) for _, *two, _, _ in points for end in two)
    q1, q3 = (ends[int(part * (len(ends) - 1) + 0.5)] for part in (0.25, 0.75))
    fence = q3 + 1.5 * (q3 - q1)
    assert q1 - 1.5 * (q3 - q1) < ends[0] < fence < ends[-1]
    return 10 ** ends[0], 10**fence


def drag(visitor: Page, chart: Locator, begin: float, end: float) -> None:
    box = chart.locator(".nbkv-plot > svg > svg").bounding_box()
    middle = box["y"] + box["height"] / 2
    visitor.mouse.move(box["x"] + begin * box["width"], middle)
    visitor.mouse.down()
    visitor.mouse.move(box["x"] + end * box["width"], middle, steps=3)
    visitor.mouse.up()


def shows_last(view: Locator) -> None:
    """Wait for the curve that is not sent unless it is chosen."""
    image = view.locator(".nbkv-chart", has_text="logged_13").locator("[role=img]")
    expect(image).to_have_attribute("aria-label", re.compile("from 0 to 207.1"))


def test_curves_are_scaled_smoothed_zoomed_compared_and_exported(shared_lab, page):
    server = shared_lab(replay("no-gpu"))
    losses = {name: store_curves(server, name, n) for name, n in (("a", 8), ("b", 16))}
    visitor = page(f"{server.address()}&nbkit-run={run_id('a')}", 1440)
    view = visitor.locator(".nbkv-page")
    chart = view.locator(".nbkv-chart", has_text="Loss")
    value = chart.locator(".nbkv-chart-value")
    expect(value).to_have_text(figures(losses["a"][-1]))

    view.get_by_label("Log scale").check()
    until(visitor, lambda: {"1", "10"} <= heights(chart).keys(), "a log scale")
    ys = heights(chart)
    assert ys["0.1"] - ys["1"] == pytest.approx(ys["1"] - ys["10"])

    view.get_by_label("Ignore outliers").check()
    until(visitor, lambda: "10" not in heights(chart), "an axis without outliers")
    low, high = lowest_and_fence(chart.evaluate("it => it.points"))
    (one, at_one), (two, at_two), *_ = heights(chart).items()
    one, two = float(one), float(two)
    # A text is 3.5 px below its line, and the plot begins at 6 px.
    top = one * (two / one) ** ((9.5 - at_one) / (at_two - at_one))
    assert top == pytest.approx(high * (high / low) ** 0.05, rel=1e-4)
    view.get_by_label("Ignore outliers").uncheck()

    average, weights = 0.0, 0.0
    for _, _, _, mean, *_ in chart.evaluate("chart => chart.points"):
        average = WEIGHT * average + (1 - WEIGHT) * mean
        weights = WEIGHT * weights + (1 - WEIGHT)
    view.get_by_label("Smoothing").fill(str(WEIGHT))
    expect(value).to_have_text(f"{figures(average / weights)} (smoothed)")
    expect(chart.locator(".nbkv-chart-raw")).to_have_count(1)

    view.get_by_label("x axis").select_option("time")
    expect(chart.locator("text", has_text="min").first).to_be_visible()
    view.get_by_label("x axis").select_option("step")
    # Of all, a point is two steps; near by, it is one.
    pointed = re.compile(r"^step [\d,]+: [\d.]+$")
    chart.locator(".nbkv-plot").hover()
    expect(value).to_have_text(re.compile(r"^step [\d,]+: .* to "))
    drag(visitor, chart, 0.5, 0.7)
    chart.locator(".nbkv-plot").hover()
    expect(value).to_have_text(pointed)
    at = int(str(value.text_content()).split(":")[0].replace(",", "")[5:])
    # The middle of the chart is beside that of its axis.
    assert at == pytest.approx(0.6 * STEPS, abs=60)
    chart.locator(".nbkv-plot").dblclick()
    expect(chart.get_by_role("button", name="reset the zoom")).to_be_hidden()

    view.get_by_text("Curves (").click()
    view.get_by_label("logged_13", exact=True).check()
    shows_last(view)
    view.get_by_text("Compare with…").click()
    listed = view.locator(".nbkv-menu-list label", has_text=run_id("b"))
    listed.get_by_role("checkbox").check()
    expect(view.locator(".nbkv-legend li")).to_have_text(
        ["a · finished", "b · finished×"]
    )
    differing = view.locator(".nbkv-differences tbody tr")
    expect(differing).to_have_text(["batch_size_per_gpu816"])
    expect(chart.locator(".nbkv-run-1 .nbkv-chart-line")).to_have_attribute(
        "d", re.compile("L.*L")
    )
    visitor.keyboard.press("Escape")

    chart.hover()
    tip = chart.locator(".nbkv-tip")
    expect(tip).to_contain_text("step")
    expect(tip.locator("> div")).to_have_count(3)
    with visitor.expect_download() as got:
        chart.get_by_role("button", name="CSV").click()
    assert got.value.suggested_filename == "a-loss.csv"
    rows = list(csv.reader(io.StringIO(Path(got.value.path()).read_text())))
    assert rows[0] == ["run_id", "step", "seconds", "loss"]
    assert [(run, int(at), float(loss)) for run, at, _, loss in rows[1:]] == [
        (run_id(name), n, loss)
        for name, stored in losses.items()
        for n, loss in enumerate(stored, 1)
    ]
    with visitor.expect_download() as got:
        chart.get_by_role("button", name="PNG").click()
    assert got.value.suggested_filename == "a-loss.png"
    assert Path(got.value.path()).read_bytes()[:4] == b"\x89PNG"
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        change_theme(visitor, theme)
        finds_nothing(visitor, ".nbkv-page")

    saved = server.folder / "settings/nbkit/plugin.jupyterlab-settings"
    until(visitor, lambda: "logged_13" in saved.read_text(), "the choices to be saved")
    visitor.goto(f"{server.address()}&nbkit-run={run_id('b')}")
    view = visitor.get_by_label(f"Run {run_id('b')}", exact=True)
    expect(view.get_by_label("Log scale")).to_be_checked()
    expect(view.locator(".nbkv-weight")).to_have_text(str(WEIGHT))
    shows_last(view)

    # As the table of runs asks for them.
    damaged = store_run(server.store, run_id("c")) / "metrics.jsonl"
    damaged.write_text("{" * (LINE_BYTES + 1))
    visitor.evaluate(
        """([run, ...others]) => document.dispatchEvent(new CustomEvent(
          'nbkit:compare', {detail: {runs: [run, ...others]}, cancelable: true}))""",
        [{"run_id": run_id(name), "name": name} for name in "bca"],
    )
    expect(view.get_by_role("alert").last).to_contain_text("metrics.jsonl is damaged")
    expect(view.locator(".nbkv-legend li")).to_have_text(
        ["b · finished", "a · finished×"]
    )
