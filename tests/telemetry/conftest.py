"""Drivers that a test describes, in this process or in a child; the feed as a child."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.telemetry.fake_nvml.fake_driver import FakeDriver, FakeGpu
from tests.waiting import wait_until

FAKE_NVML = Path(__file__).parent / "fake_nvml"


@pytest.fixture(autouse=True)
def no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide what whoever runs the tests has set."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("NBKIT_GPU_SOURCE", raising=False)


@pytest.fixture
def drive(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FakeDriver]:
    """Return a maker of drivers that stand behind pynvml until the test ends."""

    def make(*gpus: FakeGpu, **behaviour: object) -> FakeDriver:
        driver = FakeDriver(gpus, **behaviour)
        driver.install(pynvml, monkeypatch.setattr)
        return driver

    return make


@pytest.fixture
def pci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put an NVIDIA device on the PCI bus; return its folder."""
    device = tmp_path / "0000:00:04.0"
    device.mkdir()
    (device / "vendor").write_text("0x10de\n")
    monkeypatch.setattr("nbkit.telemetry.nvml.PCI_DEVICES", tmp_path)
    monkeypatch.setattr("nbkit.telemetry.nvml.WINDOWS_GPU", tmp_path / "none")
    return device


@pytest.fixture
def drive_child(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a maker of drivers that stand behind pynvml in child processes."""

    def make(*gpus: dict[str, Any], **behaviour: object) -> None:
        folders = [str(FAKE_NVML), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        path = os.pathsep.join(filter(None, folders))
        monkeypatch.setenv("PYTHONPATH", path)
        monkeypatch.setenv("FAKE_NVML", json.dumps({"gpus": gpus, **behaviour}))

    return make


class FeedChild:
    """The feed as a process, and what it wrote so far."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._output = folder / "stdout"
        self._errors = folder / "stderr"
        with self._output.open("wb") as stdout, self._errors.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "nbkit.telemetry.feed", *arguments],
                stdin=subprocess.PIPE,
                stdout=stdout,
                stderr=stderr,
            )

    @property
    def errors(self) -> str:
        """What it wrote to stderr."""
        return self._errors.read_text()

    def say(self, **command: object) -> None:
        """Send a command."""
        self.say_line(json.dumps(command))

    def say_line(self, line: str) -> None:
        """Send a line."""
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def lines(self, kind: str) -> list[dict[str, Any]]:
        """Return the lines of a kind that it wrote so far."""
        whole = self._output.read_text().split("\n")[:-1]
        return [line for line in map(json.loads, whole) if line["kind"] == kind]

    def wait(
        self, kind: str, is_it: Callable[[dict[str, Any]], object] = bool
    ) -> dict[str, Any]:
        """Return the first line of a kind that is what a test waits for."""
        found = wait_until(
            lambda: [line for line in self.lines(kind) if is_it(line)], f"such a {kind}"
        )
        return found[0]

    def wait_for_next(self, kind: str) -> dict[str, Any]:
        """Return the line of a kind that comes next."""
        number = len(self.lines(kind))
        return wait_until(lambda: self.lines(kind)[number:], f"the next {kind}")[0]

    def stop(self) -> int:
        """Close its input and return its exit code."""
        self.process.stdin.close()
        return self.process.wait(60)


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Callable[..., FeedChild]]:
    """Return a starter of feeds that tick four times a second."""
    started: list[FeedChild] = []

    def start(*arguments: str) -> FeedChild:
        folder = tmp_path / f"feed-{len(started)}"
        folder.mkdir()
        started.append(FeedChild(folder, "--interval", "0.25", *arguments))
        return started[-1]

    yield start
    for child in started:
        if not child.process.stdin.closed:
            child.stop()
