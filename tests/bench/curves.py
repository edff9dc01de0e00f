"""What the curves of a run of 100,000 steps cost: bytes to the page, and its frames."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from nbkit.live.browser_part import view_module, view_style
from nbkit.live.run import LiveRun
from nbkit.store.stored_runs import StoredRun
from tests.bench.live_view import EARLIER_STEPS, prepare
from tests.bench.rows import Row, row

LIMIT_KILOBYTES = 500.0
LIMIT_MS = 50.0
_SHOW = """async ([code, style, message]) => {
  document.head.append(Object.assign(document.createElement('style'),
    {textContent: style}));
  const url = URL.createObjectURL(new Blob([code], {type: 'text/javascript'}));
  const widget = (await import(url)).default;
  const hears = new Set();
  const model = {
    get: name => ({is_page: true, run_id: 'a-run', compared: []})[name],
    on: (_, hear) => hears.add(hear), off: () => undefined, send: () => undefined,
  };
  widget.initialize({model});
  widget.render({model, el: document.body});
  hears.forEach(hear => hear(message));
}"""
_DRAW = """() => {
  const slider = document.querySelector('input[type=range]');
  const frame = () => new Promise(done => requestAnimationFrame(done));
  const times = [];
  const draw = async n => {
    await frame();
    slider.value = n / 100;
    const began = performance.now();
    slider.dispatchEvent(new Event('input'));
    // Drawn in the next frame, and painted before the one after it.
    await frame();
    document.body.getBoundingClientRect();
    times.push(performance.now() - began);
    return n < 30 ? draw(n + 1) : times.sort((a, b) => a - b)[15];
  };
  return draw(1);
}"""


def curve_rows() -> list[Row]:
    """Measure the first message of a page, and how long it draws after a choice."""
    with tempfile.TemporaryDirectory() as home:
        root = Path(home) / "runs" / "20200101-000000-live-aaaa"
        prepare(root)
        began = time.process_time()
        live = LiveRun(StoredRun(root))
        live.read()
        seconds = time.process_time() - began
        values = live.snapshot()
    message = {"kind": "all", "number": 0, "at": time.time(), "values": values}
    kilobytes = len(json.dumps(message)) / 1e3
    points = [len(line) for line in values["series"].values()]
    what = f"{EARLIER_STEPS:,} steps, curves of {points} points"
    with sync_playwright() as playwright:
        path = shutil.which("chromium-headless-shell")
        browser = playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.evaluate(_SHOW, [view_module(), view_style(), message])
        page.locator(".nbkv-chart-line").first.wait_for()
        milliseconds = page.evaluate(_DRAW)
        browser.close()
    return [
        row("curves, first message", kilobytes, "kB", LIMIT_KILOBYTES,
            f"{what}; read in {seconds:.1f} CPU s"),
        row("curves, all charts drawn", milliseconds, "ms", LIMIT_MS,
            f"{what}; median of 30 changes of the smoothing"),
    ]  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(curve_rows(), indent=1))
