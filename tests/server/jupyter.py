"""A real Jupyter server in a process of its own, and viewers in front of it."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import websocket

from tests.jupyter_process import environment_below, wait_until_it_answers
from tests.ports import free_port
from tests.waiting import patient, wait_until

TOKEN = "a-token-that-no-log-may-hold"
STAND_IN = str(Path(__file__).with_name("stand_in_feed.py"))

# What else is installed would only make the server slower to start.
OTHERS = (
    "jupyter_lsp",
    "jupyter_server_terminals",
    "jupyterlab",
    "notebook",
    "notebook_shim",
)


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    body: Any
    content_type: str | None = None


class Jupyter:
    """A running server."""

    def __init__(
        self, process: subprocess.Popen[bytes], url: str, folder: Path
    ) -> None:
        self.process = process
        self.url = url
        self.folder = folder
        self.log_file = folder / "log"

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def request(
        self,
        path: str,
        body: Any = None,
        *,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = TOKEN,
    ) -> Answer:
        """Answer of a request; a body that is no bytes becomes JSON."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        authorization = {"Authorization": f"token {token}"} if token else {}
        request = urllib.request.Request(
            f"{self.url}{path}",
            data,
            {**authorization, **(headers or {})},
            method=method,
        )
        try:
            with _opener.open(request, timeout=60) as answer:
                kind = answer.headers["Content-Type"]
                return Answer(answer.status, _parsed(answer.read()), kind)
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _parsed(error.read()))

    def websocket(self, path: str, token: str | None = TOKEN) -> websocket.WebSocket:
        """Any websocket of the server."""
        headers = [f"Authorization: token {token}"] if token else []
        url = self.url.replace("http", "ws", 1)
        return websocket.create_connection(f"{url}{path}", timeout=60, header=headers)

    def view(self, query: str = "", token: str | None = TOKEN) -> View:
        """A websocket as a viewer has it."""
        return View(self.websocket(f"nbkit/api/stream{query}", token))

    def sampler(self) -> psutil.Process | None:
        """The sampler's process."""
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                if "--parent-fd" in child.cmdline():
                    return child
        return None

    def wait_for_sampler(self) -> psutil.Process:
        found = wait_until(self.sampler, "a sampler")
        assert found is not None
        return found


class View:
    """A viewer."""

    def __init__(self, connection: websocket.WebSocket) -> None:
        self.socket = connection

    def frame(self) -> bytes:
        """The next message's bytes."""
        return self.socket.recv_data()[1]

    def next(self, kind: str) -> dict[str, Any]:
        """The next message of a kind; others are left out."""
        while True:
            message = json.loads(self.frame())
            if message["type"] == kind:
                return message

    def send(self, text: str | bytes) -> None:
        if isinstance(text, bytes):
            self.socket.send_binary(text)
        else:
            self.socket.send(text)

    def settle(self) -> None:
        """Return when the server has taken what was sent."""
        self.socket.ping()
        while self.socket.recv_data(control_frame=True)[0] != 10:  # a pong
            pass

    def close(self) -> None:
        self.socket.close()
        # Where the server closed first, the above closes nothing.
        self.socket.shutdown()

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def jupyter(
    folder: Path,
    *options: str,
    variables: Mapping[str, str] | None = None,
    extension: bool = True,
    extensions: Sequence[str] = (),
    base_url: str = "/",
) -> Iterator[Jupyter]:
    """Start a server below a folder, and end it."""
    port = free_port()
    for name in ("root", "config", "data", "runtime", "home"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    enabled = {
        "nbkit.server": extension,
        **dict.fromkeys(OTHERS, False),
        **dict.fromkeys(extensions, True),
    }
    settings = {"ServerApp": {"jpserver_extensions": enabled}}
    config = folder / "config" / "jupyter_server_config.json"
    config.write_text(json.dumps(settings))
    command = [
        *(sys.executable, "-m", "jupyter_server", "--allow-root", "--no-browser"),
        *(f"--ServerApp.port={port}", "--ServerApp.port_retries=0"),
        *(f"--IdentityProvider.token={TOKEN}", f"--ServerApp.base_url={base_url}"),
        f"--ServerApp.root_dir={folder / 'root'}",
        *options,
    ]
    environment = {
        **environment_below(folder),
        "HOME": str(folder / "home"),
        **(variables or {}),
    }
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder / "root",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    server = Jupyter(process, f"http://127.0.0.1:{port}{base_url}", folder)
    try:
        wait_until_it_answers(process, server.url, TOKEN, server.log_file)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(patient(20))
        finally:
            process.kill()
            process.wait()


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")


# Of this machine only: a proxy is not asked, a redirect is an answer.
class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: Any, fp: Any, code: Any, msg: Any, headers: Any, newurl: Any
    ) -> None:
        return None


_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)
