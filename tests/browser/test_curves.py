"""Curves of runs: axes, smoothing, zoom, several runs, and what is exported."""

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
from tests.browser.sidebar import until
from tests.browser.test_looks import change_theme
from tests.browser.test_pages import finds_nothing
from tests.server.stored_runs import store_run
from tests.telemetry.traces import replay
from tests.widgets.stored_run import step

STEPS = 3000
WEIGHT = 0.9


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
