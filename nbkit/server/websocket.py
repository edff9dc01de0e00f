"""The websocket: one stream to every viewer, and one request back."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketHandler

from nbkit.server.handler import NbkitHandler
from nbkit.server.stream import Viewer

_LONGEST_BYTES = 4096
_LONGEST_SECONDS = 1e6
_CLOSED_BYTES = 1 << 20
"""Tornado closes a socket that sends a larger message, without reading it."""
_PING_SECONDS = 30.0
"""As Jupyter's own websockets, which count in milliseconds."""


class SocketHandler(  # pyright: ignore[reportIncompatibleMethodOverride]
    NbkitHandler, WebSocketMixin, WebSocketHandler, JupyterHandler
):
    """A websocket of nbkit's, for those who may read."""

    @property
    def max_message_size(self) -> int:
        """Bytes of the largest message that is read at all."""
        return _CLOSED_BYTES

    @property
    def ping_interval(self) -> float:
        """Seconds between the pings that find a viewer that is gone.

        Of the server's ``websocket_ping_interval``, or of ``ws_ping_interval``, which
        is Jupyter's and in milliseconds, if one is set.
        """
        milliseconds = self.settings.get("ws_ping_interval") or _PING_SECONDS * 1000
        return self.settings.get("websocket_ping_interval") or milliseconds / 1000

    @property
    def ping_timeout(self) -> float:
        """Seconds that the answer to a ping may take."""
        return self.ping_interval

    @ws_authenticated
    @authorized("read")
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Become a websocket."""
        await super().get(*args, **kwargs)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Refuse without a page: a websocket client does not show one."""
        self.finish()


class StreamHandler(SocketHandler):
    """One viewer's websocket."""

    _viewer: Viewer | None = None

    def open(self, *args: str, **kwargs: str) -> None:
        """Show everything, or what was missed since ``?stream=ID&since=SEQ``."""
        self._viewer = Viewer(lambda frame: self.write_message(frame))
        self.monitor.connect(self._viewer, *self.stream_position())

    def on_message(self, message: str | bytes) -> None:
        """Take the interval that a viewer asks for; ignore any other message."""
        if self._viewer is None or len(message) > _LONGEST_BYTES:
            return
        with suppress(ValueError, RecursionError):
            match json.loads(message):
                case {
                    "type": "interval",
                    "interval_seconds": int() | float() as seconds,
                } if seconds <= _LONGEST_SECONDS:  # NaN is not
                    least = self.monitor.settings.interval_seconds
                    self._viewer.interval_seconds = max(float(seconds), least)

    def on_close(self) -> None:
        """Forget the viewer."""
        if self._viewer is not None:
            self.monitor.disconnect(self._viewer)
            self._viewer = None
