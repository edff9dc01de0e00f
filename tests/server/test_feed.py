"""The sampler's process as the server keeps it, where starting or ending it fails."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import pkgutil
import signal
import subprocess
from collections.abc import Callable
from itertools import cycle
from typing import Any
from unittest.mock import MagicMock

import psutil
import pytest

from nbkit.server import child
from nbkit.server import feed as feed_module
from nbkit.server.feed import SamplerFeed
from nbkit.server.monitor import Monitor, Settings
from nbkit.server.run_table import StoredRunTable
from nbkit.server.tensorboards import TensorBoards
from nbkit.telemetry.holders import Kernel

# It hears of no pipe that is closed: it has to be killed.
DEAF = """
import json, os, signal
print(json.dumps({"pid": os.getpid()}), flush=True)
signal.pause()
"""


class Watched:
    """A feed and what it said."""

    def __init__(self, program: str = DEAF) -> None:
        self.pids: list[int] = []
        self.states: list[tuple[str, str | None]] = []
        self.feed = SamplerFeed(
            ["-c", program],
            0.25,
            lambda line: self.pids.append(line["pid"]),
            lambda *state: self.states.append(state),
            logging.getLogger("nbkit.test"),
        )

    async def running(self, number: int = 1) -> int:
        """Wait for the process of this number and return its pid."""
        await until(lambda: len(self.pids) >= number)
        await until(lambda: self.states[-1] == ("running", None))
        return self.pids[-1]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Let nobody wait for long."""
    monkeypatch.setattr(feed_module, "DELAYS_SECONDS", (0.05,))
    monkeypatch.setattr(child, "END_SECONDS", 0.3)
    # On a busy machine, a killed process may take some time to be gone.
    monkeypatch.setattr(child, "KILLED_SECONDS", 60)


async def no_kernels() -> list[Kernel]:
    return []


@pytest.mark.parametrize("seconds", [0.25, 1 / 3, 60.0])
def test_the_sampler_gets_the_servers_interval_to_the_last_digit(seconds, monkeypatch):
    feed = MagicMock()
    monkeypatch.setattr("nbkit.server.monitor.SamplerFeed", feed)
    log = logging.getLogger("nbkit.test")
    boards = TensorBoards(60, log)
    settings = Settings(interval_seconds=seconds)

    Monitor(settings, StoredRunTable(None), no_kernels, boards, log)

    command, *_ = feed.call_args.args
    assert float(command[-1]) == seconds


async def until(look: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not look():
            await asyncio.sleep(0.01)


EXEC = "asyncio.create_subprocess_exec"


def once(fault: Exception, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, whose first call fails."""
    faults = [fault]

    def call(*arguments: Any, **options: Any) -> Any:
        if faults:
            raise faults.pop()
        return function(*arguments, **options)

    return call


@pytest.mark.parametrize(
    ("target", "fault", "words"),
    [
        ("os.pipe", OSError(errno.EMFILE, "too many"), "failed to start"),
        (EXEC, OSError(errno.ENOMEM, "no memory"), "failed to start"),
        (EXEC, RuntimeError("unheard of"), "RuntimeError: unheard of"),
    ],
)
def test_a_fault_at_the_start_is_said_and_the_next_start_succeeds(
    monkeypatch, target, fault, words
):
    async def watch() -> Watched:
        watched = Watched()
        monkeypatch.setattr(target, once(fault, pkgutil.resolve_name(target)))
        watched.feed.start()
        await watched.running()
        await watched.feed.stop()
        return watched

    states = asyncio.run(watch()).states

    assert [state for state, _ in states] == ["starting", "failed", "running"]
    assert words in states[1][1]
    assert "restart in 0.05 s" in states[1][1]


@pytest.mark.parametrize(
    ("fresh_seconds", "words"),
    [(1000.0, "signal 9, SIGKILL: in despair"), (-1000.0, "signal 9, SIGKILL)")],
)
def test_only_what_it_said_shortly_before_its_end_is_why_it_ended(
    monkeypatch, fresh_seconds, words
):
    monkeypatch.setattr(child, "FRESH_SECONDS", fresh_seconds)
    complains = f"import sys\nprint('in despair', file=sys.stderr)\n{DEAF}"

    async def watch() -> str | None:
        watched = Watched(complains)
        watched.feed.start()
        os.kill(await watched.running(), signal.SIGKILL)
        await until(lambda: watched.states[-1][0] == "failed")
        await watched.feed.stop()
        return watched.states[-1][1]

    assert words in (asyncio.run(watch()) or "")


FAILS = """
import json, os, sys
print(json.dumps({"pid": os.getpid()}), flush=True)
sys.exit("no way to go on")
"""


def test_one_that_fails_again_and_again_waits_longer_and_each_change_is_a_line(
    monkeypatch, caplog
):
    caplog.set_level(logging.INFO, logger="nbkit.test")
    monkeypatch.setattr(feed_module, "DELAYS_SECONDS", (0.05, 0.1))

    async def watch() -> list[str]:
        watched = Watched(FAILS)

        def failures() -> list[str]:
            return [words or "" for state, words in watched.states if state == "failed"]

        watched.feed.start()
        await until(lambda: len(failures()) > 2)
        await watched.feed.stop()
        return failures()

    first, second, *_ = asyncio.run(watch())

    assert "exit code 1: no way to go on" in first
    assert "restart in 0.05 s" in first
    assert "restart in 0.1 s" in second
    logged = [record.getMessage() for record in caplog.records]
    lines = [line for line in logged if "nbkit: the sampler" in line]
    assert len(lines) >= 5
    for line, change in zip(lines, cycle(["not running", "again"]), strict=False):
        assert change in line


def test_a_line_is_as_old_as_its_process_wrote_it(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(child.time, "monotonic", lambda: now[0])
    words = child.StderrTail()
    words.add(b"first\n")
    now[0] = 200.0
    words.add(b"second\n")

    assert words.after("killed", 200.0) == "killed: second"
    assert words.after("killed", 200.1) == "killed"
    assert words.after("killed") == "killed: second"


def test_whoever_comes_while_it_ends_gets_a_new_one():
    async def watch() -> list[int]:
        watched = Watched()
        watched.feed.start()
        await watched.running()
        ending = asyncio.create_task(watched.feed.stop())
        await asyncio.sleep(0)
        watched.feed.start()
        await ending
        await watched.running(2)
        await watched.feed.stop()
        return watched.pids

    pids = asyncio.run(watch())
    assert len(set(pids)) == 2
    assert not any(map(psutil.pid_exists, pids))


def test_one_that_cannot_be_killed_keeps_no_file_and_has_no_other_beside_it(
    monkeypatch,
):
    async def watch() -> Watched:
        watched = Watched()
        files = psutil.Process().num_fds()
        with monkeypatch.context() as context:
            # As of a process that hangs in the driver.
            for process in (asyncio.subprocess.Process, subprocess.Popen):
                context.setattr(process, "kill", lambda _: None)
            context.setattr(child, "KILLED_SECONDS", 0.3)
            watched.feed.start()
            pid = await watched.running()
            await watched.feed.stop()
            # From Python 3.12 on, asyncio waits for its end at a descriptor.
            await until(lambda: psutil.Process().num_fds() <= files + 1)
            watched.feed.start()
            await until(lambda: len(watched.states) > 5)
        assert watched.pids == [pid]
        os.kill(pid, signal.SIGKILL)
        await watched.running(2)
        await watched.feed.stop()
        return watched

    watched = asyncio.run(watch())

    stuck = watched.states[3]
    assert stuck[0] == "failed"
    assert f"process {watched.pids[0]} cannot be killed" in stuck[1]
    assert "next check in 0.05 s" in stuck[1]
