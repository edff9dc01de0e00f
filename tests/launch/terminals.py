"""Terminals of the hosts of a run by hand: all of them are on this one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["Terminals", "by_hand", "terminals"]


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
