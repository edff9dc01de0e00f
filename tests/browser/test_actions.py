"""What is pressed in the panel happens to real kernels and files."""

from __future__ import annotations

import json
import re

from playwright.sync_api import expect

from tests.browser.rest import ask, kernels, settle
from tests.browser.sidebar import open_panel, until

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


def interrupts_a_kernel_that_was_restarted(visitor, panel, server, kernel):
    ask(server, f"api/kernels/{kernel}/restart", now=True)
    name = "Interrupt the kernel of train.ipynb"
    panel.get_by_role("button", name=name).click()
    with visitor.expect_response(f"**/api/kernels/{kernel}/interrupt*") as answer:
        visitor.locator(".jp-Dialog").get_by_role("button", name="Interrupt").click()
    assert answer.value.status == 204


def test_a_kernel_is_interrupted_opened_and_freed_by_keyboard_unless_it_was_restarted(
    holding, page
):
    server, kernel = holding()
    visitor = page("about:blank")
    restarts = Restarts(visitor)
    visitor.goto(server.address())
    panel = open_panel(visitor)
    expect(panel).to_contain_text("Idle kernel holds 5.0 GiB")
    expect(panel.locator(".nbk-holder")).to_have_count(3)
    expect(panel.locator(".nbk-idle")).to_have_count(1)
    free = panel.get_by_role("button", name="Free")
    dialog = visitor.locator(".jp-Dialog")
    interrupts_a_kernel_that_was_restarted(visitor, panel, server, kernel)
    expect(dialog).to_have_count(0)
    theirs = panel.get_by_role("button", name="Shut down the kernel of theirs.ipynb")
    expect(theirs).to_have_attribute("title", re.compile("another user"))
    expect(theirs).to_have_attribute("aria-disabled", "true")

    free.focus()
    visitor.keyboard.press("Enter")
    expect(dialog).to_contain_text("Shut down the kernel of train.ipynb?")
    expect(dialog).to_contain_text("5.0 GiB on GPU 0")
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

    panel.get_by_role("button", name="train.ipynb", exact=True).click()
    expect(visitor.locator(".jp-NotebookPanel")).to_be_visible()
    expect(panel.locator(".nbk-connection")).to_have_text("live")
    settle(visitor, server, 1)  # one that works is not freed
    assert kernels(server) == [kernel]

    free.focus()
    visitor.keyboard.press("Enter")
    dialog.get_by_role("button", name="Shut Down").focus()
    visitor.keyboard.press("Enter")
    until(visitor, lambda: kernels(server) == [], "the end of the kernel")
