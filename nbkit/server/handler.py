"""Base class of nbkit's request handlers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

from jupyter_server.base.handlers import APIHandler, JupyterHandler
from tornado import web

from nbkit.errors import (
    ConfigError,
    LaunchError,
    NbkitError,
    RunNotFoundError,
    StoreError,
)
from nbkit.server.monitor import Monitor
from nbkit.store.metrics import to_json_line

_LARGEST_SEQ = 2**63
_MOST_BODY_BYTES = 1 << 16
"""Requests to this extension have a few short fields."""
READ_ONLY = (
    "This server's sidebar is read-only: it cannot stop or resume runs, or copy "
    "notebooks. Ask the administrator."
)


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

    def refuse(self, status: int, message: str) -> None:
        """Answer that it is not done, and what to do now."""
        raise NotImplementedError

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Answer an error with its status."""
        try:
            yield
        except RunNotFoundError as error:
            self.refuse(404, str(error))
        except ConfigError as error:
            self.refuse(400, str(error))
        except LaunchError as error:
            self.refuse(503, str(error))
        except OSError as error:
            self.refuse(503, unreadable(error))
        except NbkitError as error:
            self.refuse(409, str(error))

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
                f"the body, {len(body):,} B, is not a JSON object of at most "
                f"{_MOST_BODY_BYTES:,} B. Send the request's fields as JSON."
            )
            raise ConfigError(message)
        unknown = sorted(set(values) - set(known))
        if unknown:
            fields = ", ".join(known) or "none"
            message = f"unknown field {unknown[0][:40]!r}. Known fields: {fields}."
            raise ConfigError(message)
        return values


class FramedHandler(NbkitHandler, JupyterHandler):
    """A page that another one of this server shows in a frame."""

    def get_login_url(self) -> str:
        """Refuse an unknown user: a login page would appear inside the frame."""
        raise web.HTTPError(403)

    def check_xsrf_cookie(self) -> None:
        """Let a POST pass that comes from a page of this server.

        TensorBoard's pages do not have Jupyter's token. A browser sends the origin of a
        POST, as it does for a websocket; without it, the token counts. GET and HEAD
        need no token, although JupyterHub asks for one: scripts and data of a page are
        requested without it.
        """
        if self.request.method in ("GET", "HEAD"):
            return
        try:
            super().check_xsrf_cookie()
        except web.HTTPError:
            if not self._is_asked_by_own_page():
                raise

    def skip_check_origin(self) -> bool:
        """Return whether the request has a token, so that its origin does not count."""
        try:
            return super().skip_check_origin()
        except RuntimeError:
            # JupyterHub asks while it finds out who the user is.
            return False

    def _is_asked_by_own_page(self) -> bool:
        """Return whether the browser reports a page of this server as the sender.

        In a hub without subdomains the pages of all users have one origin, and differ
        in their paths alone.
        """
        headers = self.request.headers
        page = unquote(urlsplit(headers.get("Referer", "")).path) or "/"
        return (
            "Origin" in headers
            and headers.get("Sec-Fetch-Site", "same-origin") == "same-origin"
            and page.startswith(unquote(self.base_url))
            and self.check_origin()
        )

    def refuse(self, status: int, message: str) -> None:
        """Answer with a sentence alone."""
        self.set_status(status)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(message)


def unreadable(error: OSError) -> str:
    """Return the message about a store that cannot be read or written."""
    if isinstance(error, StoreError):
        return str(error)
    return (
        f"the store cannot be used ({error}). Check this path, or set $NBKIT_HOME or "
        "NbkitServer.store to a folder that this server's user can read and write."
    )
