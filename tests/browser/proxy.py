"""A proxy that passes requests on and drops what asks for a websocket."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator

__all__ = ["Proxy", "proxy"]

_ASKING = b"Upgrade: websocket"
_BLOCK_BYTES = 1 << 16


class _Passing(socketserver.BaseRequestHandler):
    """One connection; a browser asks for each websocket by one of its own."""

    def handle(self) -> None:
        """Pass on in both directions until an end of it closes."""
        assert isinstance(self.server, Proxy)
        with socket.create_connection(("127.0.0.1", self.server.target)) as beyond:
            back = threading.Thread(target=_pass_on, args=(beyond, self.request))
            back.start()
            _pass_on(self.request, beyond, drop=self.server.drops_websockets)
            back.join()


class Proxy(socketserver.ThreadingTCPServer):
    """A proxy before a server of this machine."""

    daemon_threads = True
    drops_websockets = True

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.target = target

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.socket.getsockname()[1]


def _pass_on(
    source: socket.socket, target: socket.socket, *, drop: bool = False
) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_BLOCK_BYTES):
            target.sendall(data.replace(_ASKING, b"Dropped: it") if drop else data)
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
