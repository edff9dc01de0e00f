"""What a test asks a Jupyter server beside the page."""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from typing import Any

import nbformat
import psutil
from playwright.sync_api import Page

from tests.browser.sidebar import until

__all__ = ["ask", "end_kernels", "kernel_pid", "kernels", "settle", "start_kernel"]


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


def end_kernels(server: Any) -> None:
    """End every kernel, and forget which notebooks had one."""
    for session in ask(server, "api/sessions"):
        address = server.address(f"api/sessions/{session['id']}")
        request = urllib.request.Request(address, method="DELETE")
        urllib.request.urlopen(request, timeout=60).close()


def start_kernel(server: Any, path: str) -> str:
    """Return the id of a new kernel, of a new notebook."""
    nbformat.write(nbformat.v4.new_notebook(), server.root / path)
    kernel = {"name": "python3"}
    session = {"path": path, "name": path, "type": "notebook", "kernel": kernel}
    return ask(server, "api/sessions", **session)["kernel"]["id"]


def kernel_pid(server: Any, kernel_id: str) -> int | None:
    """Return the process of a kernel; None while it has none."""
    for process in psutil.Process(server.process.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if f"kernel-{kernel_id}.json" in " ".join(process.cmdline()):
                return process.pid
    return None


def settle(visitor: Page, server: Any, count: int) -> None:
    """Wait for kernels: a server that starts one at its end may never end."""

    def ready() -> bool:
        try:
            listed = ask(server, "api/kernels")
        except urllib.error.HTTPError as error:
            # Jupyter cannot list a kernel that it is about to start.
            if error.code != 500:
                raise
            return False
        return [kernel["execution_state"] for kernel in listed] == ["idle"] * count

    until(visitor, ready, "kernels that have started")
