"""A run in a notebook: followed, stopped by its button, and never lost."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Locator, Page, expect

import nbkit
from nbkit.store.record import RunState
from tests.browser.sidebar import until
from tests.telemetry.traces import replay

AXE = Path(__file__).parents[2] / "labextension/node_modules/axe-core/axe.min.js"
MANAGER = "@jupyter-widgets/jupyterlab-manager:plugin"
EXPOSED = "--LabApp.expose_app_in_browser=True"
LAUNCH = """
import nbkit
config = nbkit.ExperimentConfig(
    model="slow", device="cpu", gpus=1, image_size=32, batch_size_per_gpu=4,
    steps=1_000_000, warmup_steps=1, tensorboard=False, name="kept",
)
run = nbkit.launch(config, on_owner_exit="keep")
run
"""
WAIT = """
import pathlib, time
while not pathlib.Path("{}").exists():
    time.sleep(0.05)
"""
ATTACH = "import nbkit\nnbkit.attach(nbkit.runs()[0].run_id)"
RUNS = "nbkit.runs()"
# What Lab's menu does, once it has asked.
RESTARTS_KERNEL = (
    "jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()"
)


def write(server: Any, name: str, *cells: str) -> None:
    kernel = {"name": "python3", "display_name": "Python 3"}
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbformat.write(notebook, server.root / name)


def open_notebook(visitor: Page, name: str) -> None:
    """Bring a notebook to the front, and wait until its kernel answers."""
    until(visitor, lambda: visitor.evaluate("'jupyterapp' in window"), "Lab")
    expect(visitor.locator("#jupyterlab-splash")).to_have_count(0)
    # What is said of a notebook may come before Lab has restored what was open.
    visitor.evaluate(
        """path => jupyterapp.restored.then(
          () => jupyterapp.commands.execute('docmanager:open', {path})
        ).then(() => undefined)""",
        name,
    )
    is_ready = """path => {
      const {context, sessionContext} = jupyterapp.shell.currentWidget ?? {};
      return context?.path === path &&
        sessionContext.session?.kernel?.status === 'idle';
    }"""
    until(visitor, lambda: visitor.evaluate(is_ready, name), f"the kernel of {name}")


def command(visitor: Page, name: str) -> None:
    visitor.evaluate("name => void jupyterapp.commands.execute(name)", name)


def run_all(visitor: Page) -> None:
    command(visitor, "notebook:run-all-cells")


def step_in(view: Locator) -> int:
    """Return the step that a view shows; 0 if it shows none."""
    words = view.locator(".nbkv-words").first.text_content(timeout=60_000) or ""
    found = re.match(r"step ([\d,]+)", words)
    return int(found[1].replace(",", "")) if found else 0


def grows(visitor: Page, view: Locator) -> int:
    """Wait until a view has gone on; return its step."""
    before = until(visitor, lambda: step_in(view), "a step")
    until(visitor, lambda: step_in(view) > before, "another step")
    return step_in(view)


def has_every_step_once(visitor: Page, view: Locator) -> None:
    """Look at the curve that a page has put together of all that it was told."""

    chart = view.locator(".nbkv-chart").first
    # Each of its points stands for as many steps as the resolution says.
    # The last one is the last step alone.
    xs = chart.evaluate("chart => chart.points.slice(0, -1).map(([x]) => x)")
    widths = {after - before for before, after in itertools.pairwise(xs)}
    assert xs[0] == 1
    assert len(widths) == 1
    assert widths.pop() > 0


def stops_by_its_button(visitor: Page, view: Locator, run: nbkit.Run) -> None:
    """Stop a run, after thinking better of it once."""
    stop = view.get_by_role("button", name="Stop", exact=True)
    expect(view.locator(".nbkv-state")).to_have_text("running")
    stop.click()
    expect(view.get_by_role("button", name="Cancel")).to_be_focused()
    visitor.keyboard.press("Escape")
    expect(stop).to_be_focused()
    assert not run.paths.stop.exists()

    stop.click()
    view.get_by_role("button", name="Stop the run").click()
    expect(view.locator(".nbkv-state")).to_have_text("stopped")
    expect(view.locator(".nbkv-cause")).to_contain_text("stopped by user")
    steps = f"(over {run.summary.n_steps:,} steps)"
    expect(view.locator(".nbkv-facts").first).to_contain_text(steps)
    headline = view.locator(".nbkv-chart", has_text="Images/s").locator(
        ".nbkv-chart-value"
    )
    rate = view.locator(".nbkv-facts dd").first.text_content()
    expect(headline).to_have_text(f"{rate} (n={run.summary.n_steps:,})")
    assert run.state is RunState.STOPPED
    # Whoever looks at the end sees the last step that was recorded.
    last = run.metrics()[-1]["step"]
    until(visitor, lambda: step_in(view) == last, "the last step")


def test_a_run_is_followed_and_outlives_page_and_kernel(lab, page, monkeypatch):
    server = lab(replay("no-gpu"), EXPOSED)
    monkeypatch.setenv("NBKIT_HOME", str(server.store))
    write(server, "a.ipynb", LAUNCH, WAIT.format("never"))
    write(server, "b.ipynb", ATTACH, RUNS, WAIT.format("b"))
    server.set(MANAGER, saveState=True)
    visitor = page(server.address("lab/tree/a.ipynb"))
    expect(visitor.locator("#jupyterlab-splash")).to_have_count(0)
    view = visitor.locator(".nbkv:visible").first
    try:
        # The next cell works at once, and the view goes on beside it.
        open_notebook(visitor, "a.ipynb")
        run_all(visitor)
        expect(view.locator(".nbkv-state")).to_have_text("running")
        grows(visitor, view)
        expect(visitor.locator(".jp-InputPrompt", has_text="[*]")).to_have_count(1)
        expect(visitor.locator(".nbkit-picture")).to_be_hidden()
        run = nbkit.runs()[0]

        # The kernel is interrupted, and the page is loaded anew.
        command(visitor, "notebook:interrupt-kernel")
        expect(visitor.get_by_text("KeyboardInterrupt").first).to_be_visible()
        grows(visitor, view)
        visitor.evaluate("jupyterapp.commands.execute('docmanager:save')")
        seen = step_in(view)
        visitor.reload()
        expect(view.locator(".nbkv-state")).to_have_text("running")
        assert grows(visitor, view) > seen
        has_every_step_once(visitor, view)

        # The kernel is restarted, then a busy one attaches to the run: the server feeds
        # the view, and stops the run.
        visitor.evaluate(RESTARTS_KERNEL)
        grows(visitor, view)
        open_notebook(visitor, "b.ipynb")
        run_all(visitor)
        expect(view.locator(".nbkv-state")).to_have_text("running")
        assert grows(visitor, view) > seen
        expect(
            visitor.locator(".jp-InputPrompt:visible", has_text="[*]")
        ).to_have_count(1)
        stops_by_its_button(visitor, view, run)
        (server.root / "b").touch()
        row = visitor.locator(".nbkv-runs tbody tr:visible")
        expect(row).to_have_count(1)
        visitor.locator(".nbkv-runs:visible").scroll_into_view_if_needed()
        expect(row).to_contain_text("stopped")
    finally:
        for each in nbkit.runs():
            each.stop(grace_seconds=0)
