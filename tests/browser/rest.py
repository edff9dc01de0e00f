"""What a test asks a Jupyter server beside the page."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from playwright.sync_api import Page

from tests.browser.sidebar import until

__all__ = ["ask", "kernels", "settle"]


def ask(server: Any, address: str, **body: object) -> Any:
    """Return the answer of Jupyter's own REST interface."""
    request = urllib.request.Request(
        server.address(address),
        data=json.dumps(body).encode() if body else None,
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def kernels(server: Any) -> list[str]:
    """Return the ids of the kernels that the server has."""
    return [kernel["id"] for kernel in ask(server, "api/kernels")]


def settle(visitor: Page, server: Any, count: int) -> None:
    """Wait for kernels: a server that starts one at its end may never end."""

    def ready() -> bool:
        states = [kernel["execution_state"] for kernel in ask(server, "api/kernels")]
        return states == ["idle"] * count

    until(visitor, ready, "kernels that have started")
