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


def traced_gpu(trace="one-gpu", index=0):
    """Return the UUID of a GPU of a trace."""
    traces = importlib.resources.files("nbkit.telemetry") / "traces"
    header = (traces / f"{trace}.jsonl").read_text().splitlines()[0]
    return json.loads(header)["devices"][index]["uuid"]


def store_past(store, uuid, minutes, started_minutes, percent=42):
    """Write a run that goes on, and what its sampler has seen: its share, and 25 %."""
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
            gpu_utilization_percent=percent,
            memory_used_bytes=20,
            memory_total_bytes=80,
        )
        host = HostSample(12.5, memory_used_bytes=1, memory_available_bytes=3)
        sample = Sample(now - second, (gpu,), host=host)
        rows.append({"kind": "sample", **sample.to_dict()})
    samples = RunPaths(folder).system(hostname())
    samples.parent.mkdir()
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows))


class Plot:
    """The past of a GPU's utilization, which moves on and is laid out at any time."""

    def __init__(self, panel):
        self.page = panel.page
        self.gpu = card(panel, 0)
        self.slider = self.gpu.get_by_role("slider", name="Utilization of GPU 0")
        self.tip = self.gpu.locator(".nbk-tip")

    def told(self):
        """Return what is told of the moment that is pointed at; nothing without one."""
        return " ".join("".join(self.tip.all_inner_texts()).split())

    def point(self, share):
        """Move the mouse to a share of the width that the plot has now."""
        box = self.slider.bounding_box()
        place = {"x": box["width"] * share, "y": box["height"] / 2}
        self.slider.hover(position=place)

    def press(self, *keys):
        """Press keys in the plot; Lab may have taken the focus meanwhile."""
        if not self.slider.evaluate("plot => plot === document.activeElement"):
            self.gpu.locator(".nbk-toggle").focus()
            self.page.keyboard.press("Tab")
        for key in keys:
            self.page.keyboard.press(key)

    def bin(self):
        """Return which of its 120 bins is pointed at, or is the newest."""
        return self.slider.evaluate(
            """plot => {
              const [first, last, now] = ['min', 'max', 'now'].map(name =>
                Number(plot.getAttribute('aria-value' + name)));
              return Math.floor(120 * (now - first) / (last - first));
            }"""
        )


def choose(select, label, shown, words):
    """Choose an option until it is shown; what is saved late may undo a choice."""

    def is_shown():
        if select.evaluate("it => it.selectedOptions[0]?.label") != label:
            select.select_option(label=label)
        return words in shown.inner_text()

    until(select.page, is_shown, words)


def test_the_past_of_a_run_is_read_by_mouse_and_by_keys(lab, page):
    server = lab("replay:one-gpu")
    store_past(server.store, traced_gpu(), minutes=40, started_minutes=5)
    visitor = page(server.address(), width=1600)
    panel = open_panel(visitor)
    plot = Plot(panel)
    mark = plot.gpu.locator(".nbk-sparkline-mark.nbk-mod-start")
    span = panel.locator(".nbk-legend").first
    expect(span).to_contain_text("last 30 min")
    expect(mark).to_have_count(1)
    value = re.compile(r"mean \d+%")
    expect(plot.slider).to_have_attribute("aria-valuetext", value)

    # Each look moves the mouse again: the drawing may have moved on below it.
    def middle_is_told():
        plot.point(1 / 4)
        told = plot.told()
        return {"GPU 42%", "memory 25%"} <= set(told.split(" · ")) and told

    assert "started" not in until(visitor, middle_is_told, "the values of the run")

    def start_is_told():
        plot.point(float(mark.get_attribute("x1")) / 120)
        return "a run started" in plot.told()

    until(visitor, start_is_told, "the start of the run")
    panel.locator(".nbk-header").hover()
    expect(plot.tip).to_have_count(0)

    def newest_is_told():
        plot.press()
        return bool(plot.told()) and plot.bin() > 110

    until(visitor, newest_is_told, "the newest values")

    def oldest_is_told():
        plot.press("Home")
        return plot.bin() == 0 and "GPU 42%" in plot.told()

    until(visitor, oldest_is_told, "the oldest values")
    expect(plot.slider).to_have_attribute("aria-valuetext", re.compile("GPU 42%"))

    def mouse_is_followed():
        plot.point(3 / 4)
        return 85 <= plot.bin() <= 95

    until(visitor, mouse_is_followed, "where the mouse is")

    # A key takes over from the mouse, and one of the browser's is left to it.
    def key_is_followed():
        plot.press("Home", "Alt+End", "PageUp")
        return plot.bin() == 10

    until(visitor, key_is_followed, "a later moment")
    plot.press("Escape")
    expect(plot.tip).to_have_count(0)
    plot.press("ArrowLeft")
    expect(plot.tip).to_be_visible()
    visitor.keyboard.press("Tab")
    expect(plot.tip).to_have_count(0)

    panel.get_by_role("button", name="nbkit settings").click()
    reach = visitor.locator('select[id$="_historyMinutes"]')
    choose(reach, "10", span, "last 10 min")
    # No more than is known.
    choose(reach, "120", span, "last 4")
    expect(mark).to_have_count(1)


def test_memory_of_a_gpu_that_was_idle_for_30_minutes_is_a_warning(lab, page):
    server = lab("replay:eight-gpus")
    uuid = traced_gpu("eight-gpus", 4)
    store_past(server.store, uuid, minutes=40, started_minutes=40, percent=0)

    panel = open_panel(page(server.address()))

    gpu = panel.get_by_role("group", name="GPU 4, NVIDIA H100")
    held = re.compile(r"idle: 2\d\.\d GiB held")
    expect(gpu.get_by_text(held)).to_be_visible()
    expect(panel.get_by_text("idle: ")).to_have_count(1)


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
        first, last, count, line = host.evaluate(
            """plot => ['min', 'max'].map(name =>
              Number(plot.getAttribute('aria-value' + name)))
              .concat(plot.querySelector('svg').viewBox.baseVal.width)
              .concat(plot.querySelector('.nbk-sparkline-edge').getAttribute('d'))"""
        )
        found = re.match(r"M(\d+) ", line)
        return first + (last - first) * int(found[1]) / count if found else last

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
