"""A real Jupyter kernel, as a notebook server starts one."""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from nbkit.store.processes import ProcessIdentity

ANSWERS_WITHIN_SECONDS = 120


class Kernel:
    """One kernel and its client."""

    def __init__(self) -> None:
        self.manager: KernelManager
        self.client: BlockingKernelClient
        self.identity: ProcessIdentity

    def start(self) -> None:
        """Start the process, and wait until it answers."""
        # Another process may take a port before the kernel listens. A socket's path has
        # 107 characters at most: pytest's folders are too long.
        sockets = tempfile.mkdtemp(prefix="kernel-")
        # A manager closes its sockets for good when its kernel is shut down.
        self.manager = KernelManager(transport="ipc", ip=f"{sockets}/socket")
        self.manager.start_kernel()
        self.connect()

    def connect(self) -> None:
        """Talk to the process that the manager has started."""
        self.identity = ProcessIdentity.of(self.manager.provisioner.pid)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=ANSWERS_WITHIN_SECONDS)

    def disconnect(self) -> None:
        """Leave the process alone from now on."""
        self.client.stop_channels()

    def execute(self, code: str, expression: str = "None") -> Any:
        """Execute a cell, and return the value of an expression behind it."""
        reply = self.client.execute_interactive(
            code,
            user_expressions={"value": expression},
            allow_stdin=True,  # as a page does
            timeout=ANSWERS_WITHIN_SECONDS,
            output_hook=lambda _: None,
        )
        content = reply["content"]
        assert content["status"] == "ok", content
        value = content["user_expressions"]["value"]
        assert value["status"] == "ok", value
        return ast.literal_eval(value["data"]["text/plain"])

    def reply_to(self, request: str) -> dict[str, Any]:
        """Return what the kernel answers in the end to a request, by its id.

        A slow kernel may have left answers to what was asked before.
        """
        while True:
            message = self.client.get_shell_msg(timeout=ANSWERS_WITHIN_SECONDS)
            if message["parent_header"].get("msg_id") == request:
                return message["content"]


@contextmanager
def running_kernel() -> Iterator[Kernel]:
    """Start a kernel; end it, if it still runs, and its channels."""
    kernel = Kernel()
    kernel.start()
    try:
        yield kernel
    finally:
        kernel.disconnect()
        kernel.manager.shutdown_kernel(now=True)
