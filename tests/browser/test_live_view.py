"""A run in a notebook: followed, stopped by its button, and never lost."""

from __future__ import annotations

import datetime
import itertools
import re
import shutil
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Locator, Page, expect

import nbkit
from nbkit.store.record import RunState, write_json
from tests.browser.rest import ask
from tests.browser.sidebar import until

AXE = Path(__file__).parents[2] / "labextension/node_modules/axe-core/axe.min.js"
MANAGER = "@jupyter-widgets/jupyterlab-manager:plugin"
EXPOSED = "--LabApp.expose_app_in_browser=True"
LAUNCH = """
import nbkit
config = nbkit.ExperimentConfig(
    model="slow", device="cpu", gpus=1, image_size=32, batch_size_per_gpu=4,
    steps=1_000_000, warmup_steps=1, tensorboard=True, name="kept",
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


def says_that_it_cannot_stop(view: Locator, run: nbkit.Run) -> None:
    """Try to stop a run through a kernel that does not hear it."""
    view.get_by_role("button", name="Stop", exact=True).click()
    view.get_by_role("button", name="Stop the run").click()
    expect(view.get_by_role("alert")).to_contain_text("Stop it in nbkit's sidebar")
    expect(view.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    assert not run.paths.stop.exists()


def says_what_to_do_after_a_restart(view: Locator, run: nbkit.Run) -> None:
    """Press the button of a view whose kernel was restarted."""
    view.get_by_role("button", name="Stop", exact=True).click()
    view.get_by_role("button", name="Stop the run").click()
    expect(view.get_by_role("alert")).to_contain_text("Run the cell again")
    expect(view.get_by_role("alert")).to_contain_text("stop the run in nbkit's sidebar")
    expect(view.get_by_role("button", name="Stop", exact=True)).to_be_visible()
    assert not run.paths.stop.exists()


def failed_copy(run: nbkit.Run) -> None:
    """Write a run that has failed far below in a long traceback."""
    root = run.paths.root.with_name("20200101-000000-broken-aaaa")
    root.mkdir()
    for path in (run.paths.config, run.paths.submission):
        shutil.copy(path, root)
    lines = [*(f"  line {number}" for number in range(200)), "ValueError: the cause"]
    traceback, message = "\n".join(lines), lines[-1]
    cause = {"rank": 0, "message": message, "traceback": traceback, "log": None}
    record = {"name": "broken", "state": "failed", "cause": cause}
    write_json(root / "record.json", run.record | record)


def is_asked_again(visitor: Page, run: nbkit.Run) -> None:
    """Let a table of a moment be one of now, without its cell."""
    table = visitor.locator(".nbkv-runs:visible")
    rows = table.locator("tbody tr")
    expect(table.get_by_role("status")).to_contain_text("as of ")
    expect(rows).to_have_count(1)
    failed_copy(run)
    table.get_by_role("button", name="Refresh").click()
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="broken")).to_contain_text("failed")
    rows.get_by_role("button", name="Show broken").click()

    shown = visitor.locator(".nbkv[aria-label$='broken-aaaa']")
    trace = shown.get_by_label("Traceback")
    # Its end is the cause.
    is_at_end = "pre => pre.scrollTop > 0 && " + (
        "pre.scrollHeight - pre.scrollTop - pre.clientHeight < 2"
    )
    until(visitor, lambda: trace.evaluate(is_at_end), "the end of the traceback")
    expect(shown.locator(".nbkv-log-status")).to_have_text("nothing written")
    # A page of its own, in front of the notebook.
    visitor.locator("#jp-main-dock-panel").get_by_role("tab", name="b.ipynb").click()


def idle_seconds(server: Any, path: str) -> float:
    """Return how long Jupyter has known the kernel of a notebook to be idle."""
    sessions = ask(server, "api/sessions")
    (kernel,) = [each["kernel"] for each in sessions if each["path"] == path]
    moment = datetime.datetime.fromisoformat(kernel["last_activity"])
    return (datetime.datetime.now(datetime.UTC) - moment).total_seconds()


def stops_by_its_button(visitor: Page, view: Locator, run: nbkit.Run) -> None:
    """Stop a run, after thinking better of it once."""
    stop = view.get_by_role("button", name="Stop", exact=True)
    expect(view.locator(".nbkv-state")).to_have_text("running")
    stop.click()
    expect(view.get_by_role("button", name="Cancel")).to_be_focused()
    visitor.keyboard.press("Escape")
    expect(stop).to_be_focused()
    assert not run.paths.stop.exists()

    def press() -> None:
        stop.click()
        view.get_by_role("button", name="Stop the run").click()

    def is_told() -> bool:
        # On a slow machine, the kernel's answer may come too late for the page.
        if view.get_by_role("alert").filter(has_text="does not respond").count():
            press()
        return run.paths.stop.exists() or run.state.is_final

    press()
    until(visitor, is_told, "the run to be told")

    expect(view.locator(".nbkv-state")).to_have_text("stopped")
    expect(view.locator(".nbkv-cause")).to_contain_text("stopped by user")
    steps = f"(over {run.summary.n_steps:,} steps)"
    expect(view.locator(".nbkv-facts").first).to_contain_text(steps)
    headline = view.locator(".nbkv-chart", has_text="Images/s").locator(
        ".nbkv-chart-value"
    )
    expect(headline).to_have_text(
        str(view.locator(".nbkv-facts dd").first.text_content())
    )
    assert run.state is RunState.STOPPED
    # Whoever looks at the end sees the last step that was recorded.
    last = run.metrics()[-1]["step"]
    until(visitor, lambda: step_in(view) == last, "the last step")


def read_by_everybody(visitor: Page, part: str) -> None:
    """Look for faults in a part of the page, in both themes."""
    visitor.evaluate(AXE.read_text())
    # Lab's body has no height of its own, so that axe believes that nobody sees it.
    visitor.evaluate("document.body.style.height = '100vh'")
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        visitor.evaluate(
            "theme => jupyterapp.commands.execute('apputils:change-theme', {theme})",
            theme,
        )
        body = visitor.locator("body")
        expect(body).to_have_attribute("data-jp-theme-name", theme)
        expect(visitor.locator("#jupyterlab-splash")).to_have_count(0)
        found = visitor.evaluate("part => axe.run(part)", part)
        assert [
            (each["id"], node["html"], node["failureSummary"])
            for each in found["violations"]
            for node in each["nodes"]
        ] == []
        assert "color-contrast" in {each["id"] for each in found["passes"]}


def test_a_run_is_followed_and_outlives_page_kernel_and_server(lab, page, monkeypatch):
    server = lab("replay:no-gpu", EXPOSED)
    monkeypatch.setenv("NBKIT_HOME", str(server.store))
    write(server, "a.ipynb", LAUNCH, WAIT.format("never"))
    write(server, "b.ipynb", ATTACH, RUNS, WAIT.format("b"))
    write(server, "c.ipynb", ATTACH, "nbkit.ExperimentForm()", RUNS)
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

        # The kernel is restarted, then another one attaches to the run.
        visitor.evaluate(RESTARTS_KERNEL)
        says_what_to_do_after_a_restart(view, run)
        open_notebook(visitor, "b.ipynb")
        run_all(visitor)
        expect(view.locator(".nbkv-state")).to_have_text("running")
        assert grows(visitor, view) > seen
        says_that_it_cannot_stop(view, run)
        (server.root / "b").touch()
        row = visitor.locator(".nbkv-runs tbody tr:visible")
        expect(row).to_have_count(1)
        expect(row).to_contain_text("running")

        # The server ends and comes back: without a kernel a picture is left, also
        # below a view that was saved.
        server.stop()
        assert run.state is RunState.RUNNING
        server.start()
        visitor.goto(server.address("lab/tree/a.ipynb"))
        expect(visitor.locator(".nbkit-picture")).to_be_visible()
        expect(view.locator(".nbkv-state")).to_contain_text("run the cell again")
        expect(view.locator(".nbkv-facts").first).to_be_hidden()
        read_by_everybody(visitor, ".nbkit-picture")
        open_notebook(visitor, "b.ipynb")
        run_all(visitor)
        grows(visitor, view)
        has_every_step_once(visitor, view)
        # Keys that are pressed in the view are not the notebook's.
        num_cells = visitor.locator(".jp-Notebook:visible .jp-Cell").count()
        view.locator(".nbkv-log summary").click()
        view.get_by_label("Rank").focus()
        visitor.keyboard.press("d")
        visitor.keyboard.press("d")
        cells = visitor.locator(".jp-Notebook:visible .jp-Cell")
        expect(cells).to_have_count(num_cells)
        lines = run.metrics()
        assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))

        # A click in the table shows the run's page, with its curves.
        is_asked_again(visitor, run)
        row.get_by_role("button", name="Show kept").click()
        shown = visitor.locator(".nbkv-page:visible")
        expect(shown.locator(".nbkv-state")).to_have_text("running")
        shown.get_by_role("button", name="TensorBoard").click()
        tab = visitor.locator("#jp-main-dock-panel").get_by_role(
            "tab", name="TensorBoard: kept"
        )
        expect(tab).to_have_attribute("aria-selected", "true")

        # The button stops the run.
        open_notebook(visitor, "c.ipynb")
        run_all(visitor)
        stops_by_its_button(visitor, view, run)
        read_by_everybody(visitor, ".nbkv")

        # Whatever is shown of an ended run, its kernel is idle to Jupyter.
        expect(visitor.locator(".nbkf:visible")).to_have_count(1)
        expect(visitor.locator(".nbkv-runs:visible")).to_contain_text("as of")
        until(visitor, lambda: idle_seconds(server, "c.ipynb") > 15, "an idle kernel")
    finally:
        for each in nbkit.runs():
            each.stop(grace_seconds=0)
