"""Terminals of the hosts of a run by hand: all of them are on this one."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import nbkit
from nbkit.launch.run import Run
from tests.waiting import wait_until

__all__ = ["Terminals", "begin", "by_hand", "launch_fault", "terminals"]


class Terminals:
    """Shells in which somebody pastes lines."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.opened: list[subprocess.Popen[bytes]] = []

    def paste(self, line: str, count: int = 1) -> None:
        """Paste a line into new terminals."""
        for _ in range(count):
            # By exec, so that the shell's process becomes torchrun's.
            with (self._folder / f"{len(self.opened)}.txt").open("wb") as screen:
                shell = subprocess.Popen(
                    ["/bin/sh", "-c", f"exec {line}"],
                    cwd=self._folder,
                    stdin=subprocess.DEVNULL,
                    stdout=screen,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            self.opened.append(shell)

    def screen(self, number: int) -> str:
        """Return what a terminal shows, once the line in it has ended."""
        self.opened[number].wait(300)
        return (self._folder / f"{number}.txt").read_text()

    def close(self) -> None:
        """Wait until every line has ended by itself."""
        try:
            for shell in self.opened:
                shell.wait(120)
        finally:
            for shell in self.opened:
                if shell.poll() is None:
                    shell.kill()
                    shell.wait()


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    folder = tmp_path / "terminals"
    folder.mkdir()
    # What a notebook's folder may hold is imported by nobody.
    (folder / "signal.py").write_text("raise RuntimeError('the wrong module')\n")
    opened = Terminals(folder)
    yield opened
    opened.close()


@pytest.fixture
def by_hand(small):
    """Return a maker of experiments on two hosts, both of them this one."""

    def make(**fields):
        here = {"rendezvous_host": "localhost"}
        return small(
            **{"engine": "manual", "nnodes": 2, "gpus": 1, "manual": here, **fields}
        )

    return make


def begin(run: Run, terminals: Terminals) -> None:
    """Paste a run's line on both hosts, and wait until the ranks train."""
    terminals.paste(run.torchrun_line, 2)
    wait_until(lambda: run.metrics(), "a step", 600)


def launch_fault(by_hand, how: str, bad: int, **fields) -> Run:
    """Launch a function of which one rank will fail in a known way."""
    config = by_hand()
    for field in ("engine", "nnodes", "gpus", "device", "manual"):
        fields[field] = getattr(config, field)
    return nbkit.launch(_fails, args=(how, bad), **fields)


def _fails(how, bad):
    import torch
    import torch.distributed as dist

    here = nbkit.context()
    dist.init_process_group("gloo")
    for step in range(1_000_000):
        nbkit.log({"step": step}, step=step)
        dist.all_reduce(torch.ones(1))
        if here.rank == bad and step == 3:
            if how == "exception":
                message = "the bad rank raises"
                raise ValueError(message)
            if how == "hang":
                threading.Event().wait()
            os.kill(os.getpid(), signal.SIGKILL)
