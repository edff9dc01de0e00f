"""A run in a notebook: followed, stopped by its button, and never lost."""

from __future__ import annotations

import re
from typing import Any

import nbformat
from playwright.sync_api import Locator, Page, expect

import nbkit
from nbkit.store.record import RunState
from tests.browser.rest import ask, kernels
from tests.browser.sidebar import open_panel, until
from tests.waiting import wait_until

EXPOSED = "--LabApp.expose_app_in_browser=True"
LAUNCH = """
import nbkit
config = nbkit.ExperimentConfig(
    model="resnet20", device="cpu", gpus=1, image_size=32, batch_size_per_gpu=4,
    steps=1_000_000, warmup_steps=1, tensorboard=True, name="kept",
)
run = nbkit.launch(config, on_owner_exit="keep")
run
"""
WAIT = """
import pathlib, time
while not pathlib.Path("go").exists():
    time.sleep(0.05)
"""
ATTACH = "import nbkit\nnbkit.attach(nbkit.runs()[0].run_id)"
RUNS = "nbkit.runs()"


def write(server: Any, name: str, *cells: str) -> None:
    kernel = {"name": "python3", "display_name": "Python 3"}
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbformat.write(notebook, server.root / name)


def open_notebook(visitor: Page, name: str) -> None:
    """Bring a notebook to the front, and wait until its kernel answers."""
    visitor.evaluate(
        "path => jupyterapp.commands.execute('docmanager:open', {path})", name
    )
    until(
        visitor,
        lambda: visitor.evaluate(
            "jupyterapp.shell.currentWidget?.context?.path === '%s' && "
            "jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status"
            " === 'idle'" % name
        ),
        f"the kernel of {name}",
    )


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


def test_a_run_is_followed_and_outlives_page_kernel_and_server(lab, page, monkeypatch):
    server = lab("replay:no-gpu", EXPOSED)
    monkeypatch.setenv("NBKIT_HOME", str(server.store))
    write(server, "a.ipynb", LAUNCH, WAIT)
    write(server, "b.ipynb", ATTACH, RUNS)
    visitor = page(server.address("lab/tree/a.ipynb"))
    expect(visitor.locator("#jupyterlab-splash")).to_have_count(0)
    view = visitor.locator(".nbkv:visible").first
    try:
        # The next cell works at once, and the view goes on beside it.
        open_notebook(visitor, "a.ipynb")
        run_all(visitor)
        expect(view.locator(".nbkv-state")).to_have_text("running")
        grows(visitor, view)
        expect(visitor.locator(".jp-InputPrompt", has_text="[*]")).to_be_visible()
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

        # The kernel is restarted, then another one attaches to the run.
        (kernel,) = kernels(server)
        ask(server, f"api/kernels/{kernel}/restart", now=True)
        open_notebook(visitor, "b.ipynb")
        run_all(visitor)
        expect(view.locator(".nbkv-state")).to_have_text("running")
        assert grows(visitor, view) > seen
        row = visitor.locator(".nbkv-runs tbody tr:visible")
        expect(row).to_have_count(1)
        expect(row).to_contain_text("running")

        # The server ends and comes back: without a kernel a picture is left.
        server.stop()
        assert run.state is RunState.RUNNING
        server.start()
        visitor.goto(server.address("lab/tree/a.ipynb"))
        expect(visitor.locator(".nbkit-picture")).to_be_visible()
        open_notebook(visitor, "b.ipynb")
        run_all(visitor)
        grows(visitor, view)
        lines = run.metrics()
        assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))

        # A click in the table shows the run below, whose buttons work.
        row.get_by_role("button", name="Show kept").click()
        below = visitor.locator(".nbkv[aria-label^='Run ']:visible").nth(1)
        expect(below.locator(".nbkv-state")).to_have_text("running")
        below.get_by_role("button", name="TensorBoard").click()
        tab = visitor.locator("#jp-main-dock-panel").get_by_role(
            "tab", name="TensorBoard: kept"
        )
        expect(tab).to_have_attribute("aria-selected", "true")
    finally:
        nbkit.runs()[0].stop(grace_seconds=0)


def test_the_stop_button_works_while_a_cell_does_or_says_that_it_cannot(
    lab, page, run
):
    server = lab("replay:no-gpu", EXPOSED)
    started = run(server)
    write(server, "b.ipynb", ATTACH, WAIT)
    write(server, "c.ipynb", "import nbkit")
    visitor = page(server.address("lab/tree/b.ipynb"))
    expect(visitor.locator("#jupyterlab-splash")).to_have_count(0)
    open_notebook(visitor, "b.ipynb")
    run_all(visitor)
    view = visitor.locator(".nbkv:visible")
    expect(view.locator(".nbkv-state")).to_have_text("running")
    busy = visitor.locator(".jp-InputPrompt", has_text="[*]")
    expect(busy).to_be_visible()

    view.get_by_role("button", name="Stop", exact=True).click()
    expect(view.get_by_role("button", name="Keep it")).to_be_focused()
    visitor.keyboard.press("Escape")
    expect(view.get_by_role("button", name="Stop", exact=True)).to_be_focused()
    assert not started.paths.stop.exists()
    view.get_by_role("button", name="Stop", exact=True).click()
    view.get_by_role("button", name="Stop the run").click()

    expect(view.locator(".nbkv-state")).to_have_text("stopped")
    expect(view.locator(".nbkv-cause")).to_contain_text("stopped by user")
    expect(busy).to_be_visible()
    assert wait_until(lambda: started.state.is_final, "its end")
    (server.root / "go").touch()
    expect(busy).to_have_count(0)
