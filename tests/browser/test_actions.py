"""What is pressed in the panel happens to real kernels and files."""

from __future__ import annotations

import json
import re

from playwright.sync_api import expect

from nbkit.studies.notebooks import notebook
from tests.browser.rest import ask, kernels, settle
from tests.browser.sidebar import open_panel, until
from tests.telemetry.traces import replay

STREAM = re.compile("nbkit/api/stream")


class Restarts:
    """Lets a page believe, when told to, that its kernels have new processes."""

    def __init__(self, visitor):
        self.on = False
        self.socket = None
        self.inventory = ""
        visitor.route_web_socket(STREAM, self._route)

    def _route(self, socket):
        self.socket = socket
        server = socket.connect_to_server()
        socket.on_message(server.send)
        server.on_message(self._pass_on)

    def _pass_on(self, text):
        if json.loads(text)["type"] == "inventory":
            self.inventory = text
            text = self._changed()
        self.socket.send(text)

    def _changed(self):
        message = json.loads(self.inventory)
        for gpu in message["gpus"] if self.on else []:
            for holder in gpu["holders"]:
                holder["start_ticks"] = 4711
        return json.dumps(message)

    def restart(self):
        self.on = True
        self.socket.send(self._changed())


def test_an_idle_kernel_is_freed_by_keyboard_unless_it_was_restarted(holding, page):
    server, kernel = holding()
    visitor = page("about:blank")
    restarts = Restarts(visitor)
    visitor.goto(server.address())
    panel = open_panel(visitor)
    expect(panel).to_contain_text("Idle kernel holds")
    free = panel.get_by_role("button", name="Free")
    dialog = visitor.locator(".jp-Dialog")
    theirs = panel.get_by_role("button", name="Shut down the kernel of theirs.ipynb")
    expect(theirs).to_have_attribute("title", re.compile("another user"))
    expect(theirs).to_have_attribute("aria-disabled", "true")

    free.focus()
    visitor.keyboard.press("Enter")
    expect(dialog).to_contain_text("Shut down the kernel of train.ipynb?")
    expect(dialog).to_contain_text("GiB on GPU 0")
    visitor.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    free.click()
    restarts.restart()
    dialog.get_by_role("button", name="Shut Down").click()
    expect(dialog).to_contain_text("The state has changed")
    expect(dialog).to_contain_text("was restarted")
    visitor.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    assert kernels(server) == [kernel]

    # The server does not say whether the kernel works by now.
    question = re.compile(rf"api/kernels/{kernel}(\?|$)")
    visitor.route(question, lambda route: route.fulfill(status=500, body="{}"))
    free.click()
    dialog.get_by_role("button", name="Shut Down").click()
    expect(dialog).to_contain_text("The action failed")
    visitor.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    visitor.unroute(question)
    assert kernels(server) == [kernel]

    free.focus()
    visitor.keyboard.press("Enter")
    dialog.get_by_role("button", name="Shut Down").focus()
    visitor.keyboard.press("Enter")
    until(visitor, lambda: kernels(server) == [], "the end of the kernel")


def test_a_kernel_that_was_restarted_is_interrupted_and_its_notebook_opened(
    holding, page
):
    server, kernel = holding()
    visitor = page(server.address())
    panel = open_panel(visitor)
    expect(panel.locator(".nbk-holder")).to_have_count(2)

    ask(server, f"api/kernels/{kernel}/restart", now=True)
    name = "Interrupt the kernel of train.ipynb"
    panel.get_by_role("button", name=name).click()
    with visitor.expect_response(f"**/api/kernels/{kernel}/interrupt*") as answer:
        visitor.locator(".jp-Dialog").get_by_role("button", name="Interrupt").click()
    assert answer.value.status == 204
    panel.get_by_role("button", name="train.ipynb", exact=True).click()

    expect(visitor.locator(".jp-NotebookPanel")).to_be_visible()
    expect(panel.locator(".nbk-connection")).to_have_text("live")
    assert kernels(server) == [kernel]


def test_a_tile_copies_a_notebook_into_the_folder_and_never_over_another(
    shared_lab, page
):
    server = shared_lab(replay("no-gpu"))
    visitor = page("about:blank")
    held = []

    def hold_first(route):
        held.append(route)
        if len(held) > 1:
            route.continue_()

    visitor.route(re.compile(r"nbkit/api/notebooks(\?|$)"), hold_first)
    visitor.goto(server.address())
    cards = visitor.locator(".jp-LauncherCard")
    tile = visitor.locator(".jp-LauncherCard", has_text="Scaling")

    # Lab starts although there is no answer, and a failure is not the last word.
    expect(cards.first).to_be_visible()
    expect(tile).to_have_count(0)
    until(visitor, lambda: held, "the question for notebooks")
    held[0].fulfill(status=503, body="{}")
    sections = visitor.locator(".jp-Launcher-sectionTitle")
    expect(sections.nth(1)).to_have_text("nbkit")
    tile.click()
    expect(visitor.locator(".jp-NotebookPanel")).to_have_count(1)
    assert (server.root / "scaling.ipynb").exists()
    visitor.get_by_role("menuitem", name="File", exact=True).click()
    visitor.get_by_text("New Launcher").click()
    tile.click()

    expect(visitor.locator(".jp-NotebookPanel")).to_have_count(2)
    assert (server.root / "scaling-1.ipynb").exists()
    # The palette finds it by the word on its tile.
    label = visitor.evaluate(
        "args => jupyterapp.commands.label('nbkit:copy-notebook', args)",
        {"name": "scaling", "isPalette": True},
    )
    assert label.startswith("New from nbkit: Scaling: ")
    # Never beside the original: the copy is elsewhere, which is said.
    originals = server.root / "originals"
    originals.symlink_to(notebook("scaling").parent)
    visitor.evaluate(
        "args => void jupyterapp.commands.execute('nbkit:copy-notebook', args)",
        {"name": "scaling", "cwd": "originals"},
    )
    note = "Copied to /scaling-2.ipynb: the folder /originals is read-only"
    expect(visitor.get_by_text(note)).to_be_visible()
    originals.unlink()
    settle(visitor, server, 3)
