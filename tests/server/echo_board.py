"""A process in TensorBoard's place that says what it was asked."""

from __future__ import annotations

import json
import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer

from nbkit.server.tensorboard_process import READY


class _Echo(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if self.path.startswith("/large"):
            self._answer(200, b"0" * 150_000_000)
        elif self.path.startswith("/teapot"):
            self._answer(418, b"short and stout")
        elif self.path.startswith("/drawing"):
            self._answer(200, b"<svg/>", kind="image/svg+xml")
        elif self.path.startswith("/nothing"):
            self._answer(204, b"")
        elif self.path.startswith("/broken"):
            self.connection.shutdown(socket.SHUT_RDWR)
        elif self.path.startswith("/half"):
            self._answer(200, b"half", length=8)
        elif body:
            self._answer(200, body)
        else:
            heard = {"path": self.path, "headers": dict(self.headers)}
            self._answer(200, json.dumps(heard).encode())

    def do_POST(self) -> None:
        self.do_GET()

    def _answer(
        self,
        status: int,
        body: bytes,
        length: int | None = None,
        kind: str = "text/plain",
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if status != 204:
            self.send_header("Content-Length", str(length or len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    path = Path(sys.argv[sys.argv.index("--socket") + 1])
    server = ThreadingUnixStreamServer(str(path), _Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.buffer.write(READY)
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
