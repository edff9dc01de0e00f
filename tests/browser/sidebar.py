"""What a visitor does with the panel, and what they see of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import nbformat
from playwright.sync_api import Locator, Page, WebSocket, expect

from tests.waiting import patient, wait_until

T = TypeVar("T")

__all__ = [
    "EXPOSED",
    "Frames",
    "card",
    "cut_off",
    "fold",
    "no_dialogs",
    "open_notebook_7",
    "open_panel",
    "shortened",
    "shown",
    "until",
]

# With this option of a server, `jupyterapp` of its pages does what a test asks for.
EXPOSED = "--LabApp.expose_app_in_browser=True"

# A busy machine may take so long to show a page.
_LIMIT_MILLISECONDS = 60_000


def open_panel(page: Page) -> Locator:
    """Open the panel by its tab in the sidebar, unless it is open; return it."""
    tab = page.locator('.jp-SideBar [data-id="nbkit-panel"]')
    tab.wait_for(timeout=patient(_LIMIT_MILLISECONDS))
    # Before that, Lab has not yet opened what was open when the page was left.
    expect(page.locator("#jupyterlab-splash")).to_have_count(
        0, timeout=patient(_LIMIT_MILLISECONDS)
    )
    if tab.get_attribute("aria-selected") != "true":
        tab.click()
    return shown(page)


def shown(page: Page) -> Locator:
    """Return the panel once it is shown."""
    panel = page.locator("#nbkit-panel")
    expect(panel).to_be_visible(timeout=patient(_LIMIT_MILLISECONDS))
    return panel


def card(panel: Locator, index: int) -> Locator:
    """Return the card of a GPU."""
    return panel.locator(".nbk-card").nth(index)


def until(page: Page, look: Callable[[], T], what: str) -> T:
    """Wait while the page goes on receiving."""

    def turn() -> T:
        page.wait_for_timeout(50)
        return look()

    return wait_until(turn, what)


def fold(page: Page) -> None:
    """Close the panel."""
    page.locator('.jp-SideBar [data-id="nbkit-panel"]').click()


def open_notebook_7(server: Any, page: Callable[[str], Page]) -> Page:
    """Open a new notebook in Notebook 7, and the panel; return the page."""
    kernel = {"name": "python3", "display_name": "Python 3"}
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    nbformat.write(notebook, server.root / "a.ipynb")
    visitor = page(server.address("notebooks/a.ipynb"))
    expect(visitor.locator(".jp-NotebookPanel")).to_be_visible()
    open_panel_by_palette(visitor)
    return visitor


def open_panel_by_palette(page: Page) -> None:
    """Open the panel where it has no tab, as in Notebook 7."""
    panel = page.locator("#nbkit-panel")
    item = page.locator('[data-command="nbkit:open-panel"]').filter(visible=True)

    # A page that has just been opened may not listen to keys yet, and closes the
    # palette when the notebook takes the focus.
    def panel_is_open() -> bool:
        if not panel.is_visible() and not item.count():
            page.keyboard.press("Control+Shift+C")
        item.evaluate_all("items => items.forEach(item => item.click())")
        return panel.is_visible()

    until(page, panel_is_open, "the panel")


def no_dialogs(page: Page) -> None:
    """Hide the dialogs that Lab shows where there is no server."""
    page.add_style_tag(content=".jp-Dialog { display: none !important }")


def cut_off(panel: Locator) -> list[str]:
    """Return classes of the parts that reach beyond the panel's right edge."""
    return panel.evaluate(
        """panel => [...panel.querySelectorAll('*')]
          .filter(part => part.getBoundingClientRect().right
            > panel.getBoundingClientRect().right + 1)
          .map(part => part.className.toString())"""
    )


def shortened(panel: Locator) -> list[str]:
    """Return names in rows of which a part is not shown."""
    return panel.locator(".nbk-row > .nbk-name").evaluate_all(
        """names => names
          .filter(name => name.scrollWidth > name.clientWidth + 1)
          .map(name => name.textContent)"""
    )


class Frames:
    """What a page received over nbkit's websockets, from now on."""

    def __init__(self, page: Page) -> None:
        self.texts: list[str] = []
        self.sent: list[dict[str, Any]] = []
        self.opened = 0
        self.closed = 0
        page.on("websocket", self._take)

    def _take(self, socket: WebSocket) -> None:
        if "nbkit/api/stream" not in socket.url:
            return
        self.opened += 1
        socket.on("framereceived", lambda text: self.texts.append(str(text)))
        socket.on("framesent", lambda text: self.sent.append(json.loads(text)))
        socket.on("close", lambda _: self._close())

    def _close(self) -> None:
        self.closed += 1

    @property
    def is_open(self) -> bool:
        """Whether the page watches."""
        return self.closed < self.opened

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return the messages of a type, oldest first."""
        messages = map(json.loads, self.texts)
        return [message for message in messages if message["type"] == kind]

    def by_seq(self) -> dict[int, str]:
        """Return the words of every sample, by its number."""
        return {
            message["seq"]: text
            for text in self.texts
            if (message := json.loads(text))["type"] == "sample"
        }
