"""The past of GPUs and the host: from files of runs, by mouse, keys and restarts."""

from __future__ import annotations

import datetime
import importlib.resources
import json
import re
import time

from playwright.sync_api import expect

from nbkit.store.paths import RunPaths
from nbkit.store.processes import hostname
from nbkit.telemetry.sample import GpuSample, HostSample, Sample
from tests.browser.sidebar import card, open_panel, until
from tests.server.stored_runs import store_run

MINUTE = 60.0


def traced_gpu():
    """Return the UUID of the GPU of a trace."""
    traces = importlib.resources.files("nbkit.telemetry") / "traces"
    header = (traces / "one-gpu.jsonl").read_text().splitlines()[0]
    return json.loads(header)["devices"][0]["uuid"]


def store_past(store, uuid, minutes, started_minutes):
    """Write a run that goes on, and what its sampler has seen: 42 % and 25 %."""
    now = time.time()
    folder = store_run(store, "20200101-000000-past", "running")
    file = folder / "record.json"
    record = json.loads(file.read_text())
    record["launch"] = {"devices": [uuid]}
    began = datetime.datetime.fromtimestamp(
        now - started_minutes * MINUTE, datetime.UTC
    )
    record["time"]["started"] = began.isoformat()
    file.write_text(json.dumps(record))
    rows = [{"kind": "header", "schema": 1, "t": now - minutes * MINUTE, "devices": []}]
    for second in range(int(minutes * MINUTE), 0, -1):
        gpu = GpuSample(
            0,
            uuid,
            gpu_utilization_percent=42,
            memory_used_bytes=20,
            memory_total_bytes=80,
        )
        host = HostSample(12.5, memory_used_bytes=1, memory_available_bytes=3)
        sample = Sample(now - second, (gpu,), host=host)
        rows.append({"kind": "sample", **sample.to_dict()})
    samples = RunPaths(folder).system(hostname())
    samples.parent.mkdir()
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_past_of_a_run_is_read_by_mouse_and_by_keys(lab, page):
    server = lab("replay:one-gpu")
    store_past(server.store, traced_gpu(), minutes=40, started_minutes=5)
    visitor = page(server.address(), width=1600)
    panel = open_panel(visitor)
    gpu = card(panel, 0)
    plot = gpu.get_by_role("slider", name="Utilization of GPU 0")
    tip = gpu.locator(".nbk-tip")
    mark = gpu.locator(".nbk-sparkline-mark.nbk-mod-start")
    span = panel.locator(".nbk-legend").first
    expect(span).to_contain_text("last 30 min")
    expect(mark).to_have_count(1)
    expect(plot).to_have_attribute("aria-valuetext", re.compile(r"mean \d+ %"))

    box = plot.bounding_box()
    plot.hover(position={"x": box["width"] / 4, "y": box["height"] / 2})
    expect(tip).to_contain_text("GPU 42 %")
    expect(tip).to_contain_text("memory 25 %")
    expect(tip).not_to_contain_text("started")

    # The drawing moves on between a look at it and the mouse.
    def start_is_told():
        share = float(mark.get_attribute("x1")) / 120
        plot.hover(position={"x": box["width"] * share, "y": box["height"] / 2})
        return "a run started" in tip.inner_text()

    until(visitor, start_is_told, "the start of the run")
    panel.locator(".nbk-header").hover()
    expect(tip).to_have_count(0)

    gpu.locator(".nbk-toggle").focus()
    visitor.keyboard.press("Tab")
    expect(plot).to_be_focused()
    expect(tip).to_be_visible()
    visitor.keyboard.press("Home")
    expect(tip).to_contain_text("GPU 42 %")
    expect(plot).to_have_attribute("aria-valuetext", re.compile("GPU 42 %"))
    oldest = int(plot.get_attribute("aria-valuenow"))
    # A key takes over from the mouse, and one of the browser's is left to it.
    plot.hover(position={"x": box["width"] * 3 / 4, "y": box["height"] / 2})
    until(
        visitor,
        lambda: int(plot.get_attribute("aria-valuenow")) > oldest + 15 * MINUTE,
        "where the mouse is",
    )
    for key in ("Home", "Alt+End", "PageUp"):
        visitor.keyboard.press(key)
    # Ten bins of a quarter of a minute.
    until(
        visitor,
        lambda: 2 <= (int(plot.get_attribute("aria-valuenow")) - oldest) / MINUTE < 9,
        "a later moment",
    )
    visitor.keyboard.press("Escape")
    expect(tip).to_have_count(0)
    visitor.keyboard.press("ArrowLeft")
    expect(tip).to_be_visible()
    visitor.keyboard.press("Tab")
    expect(tip).to_have_count(0)

    panel.get_by_role("button", name="Settings of nbkit").click()
    reach = visitor.locator('select[id$="_historyMinutes"]')
    reach.select_option(label="10")
    expect(span).to_contain_text("last 10 min")
    reach.select_option(label="120")
    expect(span).to_contain_text("last 2 h")
    expect(mark).to_have_count(1)


def test_a_restarted_server_is_found_again_and_a_run_has_gone_on_with_its_past(
    lab, page, run
):
    server = lab("replay:one-gpu")
    panel = open_panel(page(server.address()))
    long = run(server, device="replay")
    row = panel.locator(".nbk-run", has_text="a long run")
    mark = card(panel, 0).locator(".nbk-sparkline-mark.nbk-mod-start")
    expect(row).to_contain_text("images/s")
    expect(mark).to_have_count(1)
    expect(card(panel, 0).locator(".nbk-holders")).to_contain_text("a long run")

    def step():
        found = re.search(r"step (\d+)/", row.inner_text())
        return int(found[1]) if found else 0

    def begin_of_line():
        """Return from when on the host's past is drawn, in Unix seconds."""
        host = panel.get_by_role("slider", name="CPU of the host")
        first, last, line = host.evaluate(
            """plot => ['min', 'max'].map(name =>
              Number(plot.getAttribute('aria-value' + name)))
              .concat(plot.querySelector('.nbk-sparkline-edge').getAttribute('d'))"""
        )
        found = re.match(r"M(\d+) ", line)
        return first + (last - first) * int(found[1]) / 120 if found else last

    state = panel.locator(".nbk-connection")
    server.stop()
    expect(state).to_have_text("disconnected")
    expect(panel.locator(".nbk-age")).to_contain_text("last values")
    expect(panel).to_contain_text("The values below are the last known ones")
    expect(panel.locator(".nbk-content.nbk-mod-old")).to_have_count(1)
    before, restarted = step(), time.time()
    server.start()

    expect(state).to_have_text("live")
    expect(panel.locator(".nbk-card")).to_have_count(1)
    until(panel.page, lambda: step() > before, "progress")
    until(panel.page, lambda: begin_of_line() < restarted, "the past of the host")
    expect(mark).to_have_count(1)
    assert not long.state.is_final
