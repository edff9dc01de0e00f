"""The form in a real notebook: every field, the GPUs, a launch."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect

import nbkit
from nbkit.widgets.form_fields import sections
from tests.browser.rest import kernel_pid, kernels
from tests.browser.sidebar import EXPOSED, until
from tests.waiting import wait_until

CONTROLS = {it.path: it for section in sections() for it in section.controls}

FILLS_IN = """
form.fill(nbkit.ExperimentConfig(
    model="slow", device="replay", image_size=32, batch_size_per_gpu=4,
    steps=1_000_000, tensorboard=False, num_classes=10, devices=(7,),
))
"""

CELLS = [
    "import json, time, nbkit\nform = nbkit.ExperimentForm()\nform",
    "print('FIELDS', json.dumps(form.panel.check.fields, sort_keys=True))",
    "form.panel.checked = form.panel.checked | {'errors': dict.fromkeys("
    "form.panel.controls, 'it is bad')}",
    FILLS_IN,
]


NOT_HEARD = "Action cancelled"


class Notebook:
    """A notebook with the form, in a page."""

    def __init__(self, visitor: Page, file: Path) -> None:
        self.page = visitor
        self.file = file
        self.form = visitor.locator(".nbkf")

    def wait_for_kernel(self) -> None:
        """Wait until the page knows its kernel.

        A cell that is run before makes the page start a kernel of its own, for which it
        ends the one that the notebook has had in another page.
        """
        name = self.page.locator(".jp-NotebookPanel-toolbar .jp-KernelName")
        expect(name).to_contain_text("Python 3")

    def run(self, place: int) -> Locator:
        """Run a cell; return its output."""
        cell = self.page.locator(".jp-Notebook .jp-CodeCell").nth(place)
        prompt = cell.locator(".jp-InputPrompt")
        before = prompt.inner_text()

        # A page that has just been opened may not listen to keys yet.
        def runs() -> bool:
            if prompt.inner_text() == before:
                prompt.click()
                self.page.keyboard.press("Control+Enter")
            return prompt.inner_text() != before

        until(self.page, runs, "a cell that runs")
        return cell.locator(".jp-OutputArea-output")

    def ask(self, press: Callable[[], Any], answer: str, but: str = "") -> str:
        """Press what asks the kernel, again if it was too slow; return its answer."""
        said = self.form.locator(".nbkf-note")
        press()

        def is_answered() -> bool:
            text = "".join(said.all_text_contents())
            if NOT_HEARD in text:
                press()
            return answer in text and text != but

        until(self.page, is_answered, answer)
        return "".join(said.all_text_contents())

    def field(self, path: str) -> Locator:
        return self.form.locator(f'[data-path="{path}"]')

    def save(self, *parts: str) -> None:
        """Save the notebook; wait until the HTML of its outputs has these parts."""
        self.page.evaluate("jupyterapp.commands.execute('docmanager:save')")

        def has_all() -> bool:
            content = nbformat.read(self.file, 4)
            outputs = [it for cell in content.cells for it in cell.get("outputs", ())]
            html = "".join(it.get("data", {}).get("text/html", "") for it in outputs)
            return all(part in html for part in parts)

        until(self.page, has_all, f"a saved notebook with {parts}")

    def entered(self) -> dict[str, str | bool]:
        """Return what all controls hold."""
        return self.form.locator("[data-path]").evaluate_all(
            """fields => Object.fromEntries(fields.map(field => {
              const control = field.querySelector('input, select, textarea');
              const isSwitch = control.type === 'checkbox';
              return [field.dataset.path, isSwitch ? control.checked : control.value];
            }))"""
        )

    def errors(self) -> dict[str, str]:
        """Return what is shown beside fields, by their paths."""
        return self.form.locator("[data-path]").evaluate_all(
            """fields => Object.fromEntries(fields
              .map(field => [field, field.querySelector('.nbkf-error')])
              .filter(([field, error]) => error.checkVisibility())
              .map(([field, error]) => [field.dataset.path, error.textContent]))"""
        )

    def wait_for_fields(self, fields: dict[str, Any]) -> None:
        """Wait until the kernel has read these fields, the others at their defaults."""
        expected = f"FIELDS {json.dumps(fields, sort_keys=True)}"

        # A cell may overtake what was typed last: they reach the kernel on two ways.
        def has_read() -> bool:
            output = self.run(1)
            expect(output).to_contain_text("FIELDS")
            return expected in output.inner_text()

        until(self.page, has_read, expected)

    def enter(self, path: str, entered: str | bool) -> None:
        """Enter something as a visitor does."""
        control = self.field(path).locator("input, select, textarea")
        if isinstance(entered, bool):
            # By the keyboard: an error that comes or goes above moves what is below,
            # also between a look at where the box is and the click.
            if control.is_checked() != entered:
                control.press("Space")
            expect(control).to_be_checked(checked=entered)
        elif CONTROLS[path].kind == "choice":
            control.select_option(entered)
        else:
            control.fill(entered)


SINFO = """#!/bin/sh
echo 'day*|up|12:00:00|a1|mix|gpu:a100:4|gpu:a100:1(IDX:3)|'
echo 'night|up|infinite|c1|alloc|(null)|(null)|'
"""


@pytest.fixture
def opened(lab, page, tmp_path):
    """Return a server with replayed GPUs, and a notebook that shows a form."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "sinfo").write_text(SINFO)
    (programs / "sinfo").chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    server = lab("replay:eight-gpus", EXPOSED, PATH=path)
    kernel = {"name": "python3", "display_name": "Python 3"}
    content = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    content.cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    nbformat.write(content, server.root / "a.ipynb")
    visitor = page(server.address("lab/tree/a.ipynb"), 1300, 1600)
    notebook = Notebook(visitor, server.root / "a.ipynb")
    expect(visitor.locator(".jp-Notebook .jp-CodeCell")).to_have_count(len(CELLS))
    expect(visitor.locator("#jupyterlab-splash")).to_have_count(0)
    notebook.wait_for_kernel()
    notebook.run(0)
    expect(notebook.form).to_be_visible()
    return server, notebook


@pytest.fixture
def launched():
    """Return a list for runs, which end with the test."""
    runs = []
    yield runs
    for run in runs:
        run.stop(grace_seconds=0)


def test_form_picks_gpus_and_launches_runs(opened, launched, monkeypatch):
    server, notebook = opened
    monkeypatch.setenv("NBKIT_HOME", str(server.store))
    form = notebook.form
    said = form.locator(".nbkf-note")
    launch = form.get_by_role("button", name="Launch")
    device = notebook.page.locator('[data-path="device"]')
    form.locator("details.nbkf-section", has=device).locator("> summary").click()
    notebook.enter("device", "cpu")
    expect(form.locator(".nbkf-memory")).to_be_hidden()
    notebook.enter("device", CONTROLS["device"].default)
    expect(form.locator(".nbkf-memory")).to_be_visible()

    form.get_by_role("button", name="GPU 6").click()
    free = form.get_by_role("button", name=re.compile("GPU 7.*free"))
    free.click()
    expect(free).to_have_attribute("aria-pressed", "true")
    picked = {"devices": "6, 7", "gpus": "2", "device": "replay"}
    assert picked.items() <= notebook.entered().items()
    form.get_by_role("button", name="GPU 6").click()
    expect(form).to_contain_text("devices=(7,)")
    presets = form.get_by_label("Preset")
    expect(presets.locator("option", has_text="netapp_resnet50")).to_have_count(1)
    notebook.ask(lambda: presets.select_option("netapp_resnet50"), "NetApp")
    # What came of it stands below its control, and not at the form's other end.
    below = form.locator(".nbkf-head + .nbkf-note")
    expect(below).to_contain_text("NetApp")
    assert notebook.entered()["optimizer"] == "lars"

    notebook.run(3)
    expect(form).to_contain_text('model="slow"')
    first = notebook.ask(launch.click, "Launched")

    # Nobody waits for a run; its view takes the place of the view of the one before.
    notebook.ask(launch.click, "Launched", but=first)
    launched += nbkit.runs()
    second, first = launched
    view = notebook.page.locator(".nbkv")
    expect(view).to_have_count(1)
    expect(view).to_contain_text(second.run_id)
    # The first one's claim may be read before its name is in it.
    wait_until(lambda: "slow of " in str(second.record.get("queue")), "the reason")
    # Nobody has pressed Refresh: a form that is used looks again.
    form.get_by_role("button", name="GPU 7").hover()
    held = form.get_by_role("button", name=re.compile(f"GPU 7.*{first.run_id}"))
    expect(held).to_be_visible()
    assert (first.config.devices, second.config.devices) == ((7,), (7,))
    assert second.submission["parameter_sources"]["model"] == "form"

    # A kernel that does not hear is not told to launch something some day.
    pid = kernel_pid(server, kernels(server)[0])
    os.kill(pid, signal.SIGSTOP)
    try:
        launch.click()
        expect(said.last).to_contain_text(NOT_HEARD)
    finally:
        os.kill(pid, signal.SIGCONT)
    expect(notebook.run(1)).to_contain_text("FIELDS")
    assert len(nbkit.runs()) == 2

    # What is saved shows without a kernel what was entered, and what became of it.
    notebook.save("<td>slow</td>", *(run.run_id for run in launched))
    static = notebook.page.locator(".nbkf-saved, .nbkit-picture")
    expect(static).to_have_count(3)
    expect(static.filter(visible=True)).to_have_count(0)
