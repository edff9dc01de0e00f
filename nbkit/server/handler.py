"""Base class of nbkit's request handlers."""

from __future__ import annotations

import json
from contextlib import suppress
from types import TracebackType
from typing import Any

from jupyter_server.base.handlers import APIHandler
from tornado import web

from nbkit.errors import StoreError
from nbkit.server.monitor import Monitor
from nbkit.store.metrics import to_json_line

_LARGEST_SEQ = 2**63
_MOST_BODY_BYTES = 1 << 16
"""Requests to this extension have a few short fields."""


class NbkitHandler(web.RequestHandler):
    """Names the resource for authorizers, and keeps tokens out of the log."""

    auth_resource = "nbkit"

    def initialize(self, monitor: Monitor) -> None:
        """Take what all handlers share."""
        self.monitor = monitor

    def stream_position(self) -> tuple[str | None, int | None]:
        """Return the stream and newest message that ``?stream=ID&since=SEQ`` names."""
        stream = self.get_query_argument("stream", None)
        since = self.get_query_argument("since", None)
        is_number = since is not None and since.isdecimal() and since.isascii()
        number = min(int(since[:20]), _LARGEST_SEQ) if since and is_number else None
        return stream, number

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Log a fault by the path alone: tornado's own words hold the whole URL.

        A refusal (`tornado.web.HTTPError`) is logged by Jupyter with its request.
        """
        if typ is None or value is None or isinstance(value, web.HTTPError):
            return
        self.monitor.log.error(
            "nbkit: %s failed", self.request.path, exc_info=(typ, value, tb)
        )


class ApiHandler(NbkitHandler, APIHandler):
    """A JSON handler that an idle browser polls: requests are not user activity."""

    _track_activity = False

    def reply(self, values: dict[str, Any], status: int = 200) -> None:
        """Answer with JSON; what is not finite becomes null."""
        self.set_status(status)
        self.finish(to_json_line(values))

    def refuse(self, status: int, message: str) -> None:
        """Answer that it is not done, and what to do now."""
        self.reply({"message": message}, status)

    def body(self, *known: str) -> dict[str, Any]:
        """Return the fields of the request's JSON object."""
        body, values = self.request.body, None
        if len(body) <= _MOST_BODY_BYTES:
            with suppress(ValueError, RecursionError):  # also of what is not UTF-8
                values = json.loads(body or b"{}")
        if not isinstance(values, dict):
            message = (
                f"the body ({len(body):,} bytes) is not a JSON object of at most "
                f"{_MOST_BODY_BYTES:,} bytes. Send only the fields."
            )
            raise ValueError(message)
        unknown = sorted(set(values) - set(known))
        if unknown:
            fields = ", ".join(known) or "none"
            message = f"unknown field {unknown[0][:40]!r}. Use one of: {fields}."
            raise ValueError(message)
        return values


def unreadable(error: OSError) -> str:
    """Return the message about a store that cannot be read."""
    if isinstance(error, StoreError):
        return str(error)
    return (
        f"the store cannot be read ({error}). Set $NBKIT_HOME, or "
        "NbkitServer.store, to a folder that this server's user can read."
    )
