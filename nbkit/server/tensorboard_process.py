"""One TensorBoard on a Unix socket, in a process that ends with its parent.

A port would be open to every user of the machine; the socket is in a folder that only
this user may enter.
"""

from __future__ import annotations

import argparse
import functools
import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MODULE = "nbkit.server.tensorboard_process"
NOT_INSTALLED = 3
"""The exit code if TensorBoard is not installed."""
READY = b"ready\n"
"""Written to standard output once the socket is open."""

_PAGES = ("/", "/index.html")
_FONTS = (b"url(/font-roboto/", b"url(font-roboto/")
"""Where its page requests its fonts: at the root of the site, where another server may
answer; and relative to the page."""


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("--logdir", required=True, help="folder of event files")
    parser.add_argument(
        "--socket",
        required=True,
        type=Path,
        help="Unix socket to listen on; its folder is removed at exit",
    )
    return parser.parse_args(argv)


def _end_with_parent(folder: Path) -> None:
    """Wait for the end of standard input: the parent, or its last word, is gone."""
    while os.read(0, 1 << 12):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    # TensorBoard may be in the midst of anything, also of its start.
    os._exit(0)


def _load(path: Path) -> tuple[Any, Callable[..., Any]]:
    """Return TensorBoard's program and the maker of its server at a socket."""
    from tensorboard import program
    from werkzeug.serving import BaseWSGIServer, make_server
    from werkzeug.wrappers import Response

    def with_own_fonts(app: Any, environ: dict[str, Any], start: Any) -> Any:
        if environ["PATH_INFO"] not in _PAGES:
            return app(environ, start)
        page = Response.from_app(app, environ)
        page.set_data(page.get_data().replace(*_FONTS))
        return page(environ, start)

    class SocketServer:
        """What TensorBoard asks of a server, and nothing of its own servers."""

        def __init__(self, wsgi_app: Any, flags: Any) -> None:
            self._server: BaseWSGIServer = make_server(
                self.get_url(),
                0,
                functools.partial(with_own_fonts, wsgi_app),
                threaded=True,
            )

        def serve_forever(self) -> None:
            self._server.serve_forever()

        def get_url(self) -> str:
            return f"unix://{path}"

        def print_serving_message(self) -> None:
            pass

    return program, SocketServer


def main(argv: Sequence[str] | None = None) -> int:
    """Show one folder until the parent ends; return the exit code of a failed start."""
    arguments = _parse(argv)
    folder = arguments.socket.parent
    threading.Thread(target=_end_with_parent, args=[folder], daemon=True).start()
    # TensorBoard's own output must not be taken for the sign.
    sign = os.dup(1)
    os.dup2(2, 1)
    try:
        program, server = _load(arguments.socket)
    except ModuleNotFoundError as error:
        if error.name != "tensorboard":
            raise
        return NOT_INSTALLED
    # One line a request is the parent's business, which knows who asked.
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    board = program.TensorBoard(server_class=server)
    # Its fast loader is a process that listens at a port.
    board.configure(logdir=arguments.logdir, load_fast="false")
    board.launch()
    os.write(sign, READY)
    os.close(sign)
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
