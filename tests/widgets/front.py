"""A page with widgets, as a kernel hears it."""

from __future__ import annotations

import queue
from typing import Any


class Front:
    """A kernel as a page with widgets talks to it."""

    def __init__(self, kernel: Any) -> None:
        self._client = kernel.client
        self.messages: list[dict[str, Any]] = []

    def execute(self, code: str) -> str:
        """Begin to execute a cell as JupyterLab does; return the request's id."""
        content = {
            "code": code,
            "silent": False,
            "store_history": True,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": True,
        }
        return self._send("execute_request", content, metadata={"cellId": "a-cell"})

    def say(self, comm: str, **content: Any) -> None:
        """Send a widget a message."""
        data = {"method": "custom", "content": {"view": "a-view", **content}}
        self._send("comm_msg", {"comm_id": comm, "data": data})

    def find(self, kind: str) -> list[dict[str, Any]]:
        """Return contents of the kind that have come so far."""
        try:
            while True:
                self.messages.append(self._client.get_iopub_msg(timeout=0.05))
        except queue.Empty:
            pass
        return [
            message["content"]
            for message in self.messages
            if message["msg_type"] == kind
        ]

    def told(self, kind: str) -> list[dict[str, Any]]:
        """Return what the view told its page so far, of one kind."""
        contents = [content["data"] for content in self.find("comm_msg")]
        told = [data["content"] for data in contents if data["method"] == "custom"]
        return [content for content in told if content["kind"] == kind]

    def _send(
        self,
        kind: str,
        content: dict[str, Any],
        metadata: dict[str, Any] | None = None,
    ) -> str:
        session = self._client.session
        message = session.msg(kind, content, metadata=metadata or {})
        self._client.shell_channel.send(message)
        return message["header"]["msg_id"]
