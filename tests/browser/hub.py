"""A real JupyterHub with its own proxy, and the servers of its users."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import websocket
from certipy import Certipy
from playwright.sync_api import Page

from tests.browser.sidebar import EXPOSED
from tests.jupyter_process import (
    environment_below,
    opener_of,
    wait_until_it_answers,
)
from tests.ports import free_port
from tests.waiting import patient, wait_until

__all__ = ["ALICE", "BOB", "CAROL", "Hub", "Server", "hub"]

# What her server's address and home are called so must be quoted, and is.
ALICE = "alice 50%@example.org"
BOB = "bob"
CAROL = "carol"
"""Her server is in a container, as where each user has a pod."""
TOKEN = "a-token-of-32-letters-0123456789"

_CONFIG = Path(__file__).with_name("hub_config.py")
_PROXY = (
    Path(__file__).parents[2]
    / "labextension/node_modules/configurable-http-proxy/bin/configurable-http-proxy"
)


class Server:
    """The server of one user, as somebody asks it."""

    def __init__(self, hub: Hub, owner: str, token: str) -> None:
        self.hub, self.owner, self.token = hub, owner, token

    @property
    def url(self) -> str:
        """Its address."""
        return f"{self.hub.url}user/{quote(self.owner, safe='@')}/"

    @property
    def folder(self) -> Path:
        """Its user's home, with the store in it."""
        return self.hub.folder / "homes" / self.owner

    def request(
        self, path: str, body: object = None, method: str | None = None
    ) -> tuple[int, Any]:
        """Return status and JSON of an answer."""
        return self.hub.ask(f"{self.url}{path}", self.token, body, method)

    def websocket(self, path: str) -> websocket.WebSocket:
        """Return a connection to one of its websockets."""
        url = self.url.replace("http", "ws", 1)
        headers = [f"Authorization: token {self.token}"]
        trust = {"ca_certs": str(self.hub.authority)}
        return websocket.create_connection(
            f"{url}{path}", timeout=60, header=headers, sslopt=trust
        )

    def execute(self, code: str) -> None:
        """Execute code in a kernel of its own, which stays until it has done so."""
        status, kernel = self.request("api/kernels", {"name": "python3"})
        assert status == 201, kernel
        path = f"api/kernels/{kernel['id']}"
        with contextlib.closing(self.websocket(f"{path}/channels")) as connection:
            connection.send(json.dumps(_asking_to_execute(code)))
            while True:
                message = json.loads(connection.recv())
                if message["header"]["msg_type"] == "execute_reply":
                    break
        assert message["content"]["status"] == "ok", message["content"]
        assert self.request(path, method="DELETE")[0] == 204


class Hub:
    """A running hub."""

    def __init__(self, folder: Path, url: str, pid: int, authority: Path) -> None:
        self.folder, self.url, self.pid, self.authority = folder, url, pid, authority
        self._opener = opener_of(authority)

    @property
    def log(self) -> str:
        """What hub, proxy and servers have printed."""
        return (self.folder / "log").read_text()

    def server(self, owner: str, asker: str | None = None) -> Server:
        """Return a user's server, as the user or somebody else asks it."""
        status, token = self.ask(f"{self._path(asker or owner)}/tokens", TOKEN, {})
        assert status == 201, token
        return Server(self, owner, token["token"])

    def start(self, owner: str) -> Server:
        """Start a user's server, and wait until it is there."""
        server = self.server(owner)
        path = self._path(owner)
        assert self.ask(f"{path}/server", TOKEN, {})[0] in (201, 202)
        wait_until(
            lambda: self.ask(path, TOKEN)[1]["servers"].get("", {}).get("ready"),
            f"the server of {owner}",
        )
        return server

    def stop(self, owner: str) -> None:
        """Stop a user's server, and wait for its end."""
        status, _ = self.ask(f"{self._path(owner)}/server", TOKEN, method="DELETE")
        assert status in (202, 204)
        self._wait_for_the_end(owner)

    def cull(self, owner: str) -> None:
        """Let the hub's culler end idle servers, and wait for one's end."""
        environment = {
            **os.environ,
            "JUPYTERHUB_API_TOKEN": TOKEN,
            "SSL_CERT_FILE": str(self.authority),
        }
        command = [sys.executable, "-m", "jupyterhub_idle_culler"]
        idle = ["--timeout=1", "--cull-every=1", f"--url={self.url}hub/api"]
        with (self.folder / "log").open("a") as log:
            culler = subprocess.Popen(
                [*command, *idle],
                env=environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            self._wait_for_the_end(owner)
        finally:
            culler.terminate()
            culler.wait()

    def _wait_for_the_end(self, owner: str) -> None:
        wait_until(
            lambda: not self.ask(self._path(owner), TOKEN)[1]["servers"],
            f"the end of the server of {owner}",
        )

    def _path(self, user: str) -> str:
        return f"{self.url}hub/api/users/{quote(user)}"

    def log_in(self, page: Page, user: str) -> None:
        """Log a visitor in, who then sees the server."""
        # Jupyter has no page at an address whose "@" is quoted.
        wanted = quote(f"/hub/user/{quote(user, safe='@')}/lab", safe="/@")
        page.goto(f"{self.url}hub/login?next={wanted}")
        page.get_by_label("Username").fill(user)
        page.get_by_label("Password").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()

    def ask(
        self, url: str, token: str, body: object = None, method: str | None = None
    ) -> tuple[int, Any]:
        """Return status and JSON of an answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"token {token}"}
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with self._opener.open(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                text = error.read()
            try:
                return error.code, json.loads(text)
            except ValueError:
                return error.code, text


@contextlib.contextmanager
def hub(folder: Path, **variables: str) -> Iterator[Hub]:
    """Start a hub below a folder, and end it with all that it has started."""
    for user in (ALICE, BOB, CAROL):
        (folder / "homes" / user).mkdir(parents=True)
    certificates = Certipy(store_dir=str(folder / "certificates"))
    certificates.create_ca("authority")
    names = ["IP:127.0.0.1"]
    pair = certificates.create_signed_pair("hub", "authority", alt_names=names)["files"]
    url = f"https://127.0.0.1:{free_port()}/"
    arguments = [EXPOSED, *(["--allow-root"] if os.getuid() == 0 else [])]
    told = {
        "url": url,
        "certificate": [pair["key"], pair["cert"]],
        "hub_port": free_port(),
        "proxy_port": free_port(),
        "proxy": ["node", str(_PROXY)],
        "token": TOKEN,
        "users": [ALICE, BOB, CAROL],
        "contained": [CAROL],
        "homes": str(folder / "homes"),
        "arguments": arguments,
    }
    environment = {
        **environment_below(folder),
        **variables,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HUB_OF_A_TEST": json.dumps(told),
    }
    # Each user has a store at its default place.
    for name in ("NBKIT_HOME", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        del environment[name]
    log = folder / "log"
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterhub", "--config", str(_CONFIG)],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )
    try:
        authority = Path(pair["ca"])
        wait_until_it_answers(process, f"{url}hub/", TOKEN, log, authority)
        yield Hub(folder, url, process.pid, authority)
    finally:
        family = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        try:
            process.wait(patient(30))
        finally:
            process.kill()
            process.wait()
            for one in family:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()


def _asking_to_execute(code: str) -> dict[str, Any]:
    header = {
        "msg_id": "1",
        "msg_type": "execute_request",
        "session": "test",
        "username": "",
        "version": "5.3",
    }
    return {
        "channel": "shell",
        "header": header,
        "parent_header": {},
        "metadata": {},
        "content": {"code": code, "silent": False},
        "buffers": [],
    }
