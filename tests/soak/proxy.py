"""A proxy that drops requests for websockets, and adds a header to answers."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator

__all__ = ["Proxy", "proxy"]

_ASKING = b"Upgrade: websocket"
_ANSWER = b"HTTP/1.1 200 OK\r\n"
_BLOCK_BYTES = 1 << 16


class _Passing(socketserver.BaseRequestHandler):
    """One connection; a browser asks for each websocket by one of its own."""

    def handle(self) -> None:
        """Pass on in both directions until an end of it closes."""
        assert isinstance(self.server, Proxy)
        with socket.create_connection(("127.0.0.1", self.server.target)) as beyond:
            added = _ANSWER + self.server.header
            back = threading.Thread(
                target=_pass_on, args=(beyond, self.request, _ANSWER, added)
            )
            back.start()
            asked = b"Dropped: it" if self.server.drops_websockets else _ASKING
            _pass_on(self.request, beyond, _ASKING, asked)
            back.join()


class Proxy(socketserver.ThreadingTCPServer):
    """A proxy before a server of this machine."""

    daemon_threads = True
    drops_websockets = True
    header = b""
    """A line that is added to each answer."""

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.target = target

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.socket.getsockname()[1]


def _pass_on(
    source: socket.socket, target: socket.socket, text: bytes, by: bytes
) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_BLOCK_BYTES):
            target.sendall(data.replace(text, by))
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    """Yield a proxy before the server at a port; it ends with the block."""
    with Proxy(port) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
