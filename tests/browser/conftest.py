"""A real JupyterLab, looked at by a real browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest
import websocket
from playwright.sync_api import Browser, Page, expect, sync_playwright

import nbkit
from nbkit.config import ExperimentConfig
from tests.browser.rest import end_kernels, start_kernel
from tests.browser.sidebar import EXPOSED
from tests.jupyter_process import environment_below, wait_until_it_answers
from tests.launch.conftest import plugins
from tests.ports import free_port
from tests.server.curves import boards
from tests.server.jupyter import View
from tests.telemetry.traces import TRACES, replay
from tests.waiting import patient

__all__ = ["plugins"]

# Debian's package of Chromium without windows, and its command.
CHROMIUM = "chromium-headless-shell"

# Without these a browser that may reach no other machine tries to, again and again.
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

# A busy machine may take so long to show anything.
_LIMIT_MILLISECONDS = 60_000
expect.set_options(timeout=_LIMIT_MILLISECONDS)

_TOKEN = "0123456789abcdef"


@dataclass
class Lab:
    """One Jupyter server, its folders, and how to reach it."""

    folder: Path
    arguments: list[str]
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    port: int = 0
    url: str = field(default="")

    @property
    def root(self) -> Path:
        """The folder that JupyterLab shows."""
        return self.folder / "root"

    @property
    def store(self) -> Path:
        """The store of the runs."""
        return self.folder / "store"

    @property
    def log(self) -> str:
        """What the server has printed."""
        return (self.folder / "server.log").read_text()

    @property
    def pids(self) -> list[int]:
        """The server's process, if there is one."""
        return [] if self.process is None else [self.process.pid]

    def start(self) -> None:
        """Start the server, at the port of the time before if there was one."""
        self.root.mkdir(exist_ok=True)
        self.port = self.port or free_port()
        command = [sys.executable, "-m", "jupyter", "lab", "--no-browser"]
        command += [f"--ServerApp.port={self.port}", "--ServerApp.port_retries=0"]
        command += [f"--ServerApp.root_dir={self.root}"]
        command += [f"--IdentityProvider.token={_TOKEN}"]
        if os.getuid() == 0:
            command += ["--allow-root"]
        command += self.arguments
        environment = {
            **environment_below(self.folder),
            "JUPYTERLAB_SETTINGS_DIR": str(self.folder / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(self.folder / "workspaces"),
            **self.environment,
        }
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, cwd=self.root
            )
        self.url = f"http://127.0.0.1:{self.port}/"
        log = self.folder / "server.log"
        wait_until_it_answers(self.process, self.url, _TOKEN, log)

    def set(self, plugin: str, **values: object) -> None:
        """Write a user's settings of a plug-in, such as ``@jupyterlab/…:themes``."""
        package, _, name = plugin.partition(":")
        file = self.folder / "settings" / package / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))

    def stop(self) -> None:
        """End the server and its kernels, as Ctrl-C does when it is confirmed."""
        if self.process is None:
            return
        self.process.terminate()
        # It ends its kernels and extensions by then. A request that is answered
        # meanwhile may leave it one of anyio's threads, for which it waits for ever.
        try:
            self.process.wait(min(patient(10), 40))
        except subprocess.TimeoutExpired:
            assert "Shutting down" in self.log, self.log
            self.process.kill()
            self.process.wait()
        self.process = None

    def tidy(self) -> None:
        """Leave to the next test what it would find in a server of its own."""
        end_kernels(self)
        ended = boards(self)
        for board in ended:
            board.kill()
        psutil.wait_procs(ended, timeout=patient(60))
        had_runs = self.store.exists()
        for folder in (
            self.store,
            self.folder / "settings",
            self.folder / "workspaces",
        ):
            if folder.exists():
                shutil.rmtree(folder)
        for path in self.root.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self.fetch_no_news()
        if had_runs:
            # The server shows what it has seen last, until it looks again.
            url = self.address("nbkit/api/stream").replace("http", "ws", 1)
            with View(websocket.create_connection(url, timeout=60)) as view:
                while view.next("runs")["runs"]:
                    pass

    def fetch_no_news(self) -> None:
        """Nobody is asked whether news may be fetched, and none are."""
        self.set(
            "@jupyterlab/apputils-extension:notification",
            fetchNews="false",
            checkForUpdates=False,
        )

    def address(self, path: str = "lab") -> str:
        """Return the address of a page, with the token."""
        return f"{self.url}{path}?token={_TOKEN}"


@pytest.fixture(scope="package")
def browser(lasting: set[int]) -> Iterator[Browser]:
    """Return Debian's Chromium, of which every page has a profile of its own."""
    path = shutil.which(CHROMIUM)
    assert path, f"{CHROMIUM} is not installed; make test installs it"
    before = set(psutil.Process().children())
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path,
            args=ARGUMENTS,
            timeout=patient(_LIMIT_MILLISECONDS),
        )
        started = {it.pid for it in set(psutil.Process().children()) - before}
        lasting |= started
        yield browser
        browser.close()
    lasting -= started


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    """Return a maker of servers, which end with the test."""
    started: list[Lab] = []

    def make(source: str | None = None, *arguments: str, **environment: str) -> Lab:
        folder = tmp_path / f"lab{len(started)}"
        started.append(_new_lab(folder, source, arguments, environment))
        started[-1].start()
        return started[-1]

    yield make
    for lab in started:
        lab.stop()


def _new_lab(
    folder: Path,
    source: str | None,
    arguments: Sequence[str],
    environment: Mapping[str, str],
) -> Lab:
    folder.mkdir()
    if source is not None:
        environment = {**environment, "NBKIT_GPU_SOURCE": source}
    lab = Lab(folder, list(arguments), dict(environment))
    lab.fetch_no_news()
    return lab


@pytest.fixture(scope="package")
def lasting_labs(
    tmp_path_factory: pytest.TempPathFactory, lasting: set[int]
) -> Iterator[Callable[[str], Lab]]:
    """Return a maker of servers, one of each source, which serve many tests."""
    labs: dict[str, Lab] = {}

    def make(source: str) -> Lab:
        if source not in labs:
            folder = tmp_path_factory.mktemp("labs") / "lab"
            labs[source] = _new_lab(folder, source, [EXPOSED], {})
            try:
                labs[source].start()
            finally:
                lasting.update(labs[source].pids)
        return labs[source]

    yield make
    for lab in labs.values():
        lasting.difference_update(lab.pids)
        lab.stop()


@pytest.fixture
def shared_lab(lasting_labs: Callable[[str], Lab]) -> Iterator[Callable[[str], Lab]]:
    """Return a finder of servers that other tests use, too, one after the other.

    For tests that neither end it nor need other options. It is left as it was found,
    but its sampler may have begun long ago.
    """
    used: list[Lab] = []

    def find(source: str) -> Lab:
        used.append(lasting_labs(source))
        return used[-1]

    yield find
    for lab in used:
        lab.tidy()


@pytest.fixture
def page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Return a maker of pages, each of a visitor of its own."""
    contexts = []

    def make(address: str, width: int = 1300, height: int = 900) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height},
            # Of a hub whose authority only the test knows.
            ignore_https_errors=True,
        )
        contexts.append(context)
        # Of tabs that a page opens, too.
        context.set_default_timeout(patient(_LIMIT_MILLISECONDS))
        page = context.new_page()
        expect.set_options(timeout=patient(_LIMIT_MILLISECONDS))
        page.goto(address)
        return page

    yield make
    for context in contexts:
        context.close()


def _write_trace(path: Path, kernel_id: str) -> None:
    """Write the trace of a GPU that two processes of a kernel hold, and other kernels.

    One of them is another user's, one has been idle for ten minutes.
    """
    mine = {
        "kind": "kernel",
        "kernel_id": kernel_id,
        "path": "train.ipynb",
        "own": True,
        "idle_seconds": 5400,
    }
    theirs = {
        "kind": "kernel",
        "kernel_id": "00000000-0000-0000-0000-000000000000",
        "path": "theirs.ipynb",
        "own": False,
        "user": "bob",
    }
    recent = {
        **mine,
        "kernel_id": "11111111-1111-1111-1111-111111111111",
        "path": "recent.ipynb",
        "idle_seconds": 600,
    }
    owners = {"2101": mine, "2102": theirs, "2103": mine, "2104": recent}
    lines = (TRACES / "one-gpu.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    for row in rows:
        if row["kind"] == "holders":
            row["by_pid"] = owners
        elif row["kind"] == "sample":
            row["gpus"][0]["processes"] = [
                {"pid": int(pid), "memory_used_bytes": gib << 30, "mig_uuid": None}
                for pid, gib in zip(owners, (3, 1, 2, 2), strict=True)
            ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def holding(lab: Callable[..., Lab], tmp_path: Path) -> Callable[..., tuple[Lab, str]]:
    """Return a maker of servers with a kernel that a trace says holds a GPU."""

    def make(*arguments: str) -> tuple[Lab, str]:
        trace = tmp_path / "trace.jsonl"
        server = lab(f"replay:{trace}", *arguments)
        kernel_id = start_kernel(server, "train.ipynb")
        _write_trace(trace, kernel_id)
        return server, kernel_id

    return make


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., nbkit.Run]]:
    """Return a starter of long runs in a server's store; they end with the test."""
    started: list[nbkit.Run] = []

    def start(server: Lab, device: str = "cpu") -> nbkit.Run:
        monkeypatch.setenv("NBKIT_HOME", str(server.store))
        monkeypatch.setenv("NBKIT_GPU_SOURCE", replay("one-gpu"))
        config = ExperimentConfig(
            model="slow",
            device=device,
            gpus=1,
            image_size=32,
            batch_size_per_gpu=4,
            steps=1_000_000,
            tensorboard=False,
            name="a long run",
        )
        started.append(nbkit.launch(config))
        return started[-1]

    yield start
    for each in started:
        if not each.state.is_final:
            each.stop()
