"""What a wait shows of a run in a notebook."""

from __future__ import annotations

import io
import itertools
import time
from types import SimpleNamespace

import pytest

from nbkit.launch import run_progress
from tests.clocks import PlayedTime
from tests.widgets.stored_run import WrittenRun


class Line:
    """Stands for the line of a notebook's output that is overwritten."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def update(self, bundle, *, raw):
        self.texts.append(bundle["text/plain"])


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Return a run whose supervisor, this process, nobody waits for."""
    seconds = itertools.count(0, 10)
    hurried = SimpleNamespace(
        monotonic=lambda: next(seconds), sleep=lambda nap: time.sleep(nap)
    )
    monkeypatch.setattr("nbkit.launch.run.time", hurried)
    return WrittenRun(tmp_path)


@pytest.fixture
def clock(monkeypatch):
    clock = PlayedTime(monkeypatch, "nbkit.launch.run_progress")
    clock.seconds = 0.0
    return clock


class Terminal(io.StringIO):
    """Stands for the standard error of a process in a terminal."""

    def isatty(self):
        return True


def test_shown_in_terminal(written, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "50")
    looks = iter(["running", "finished"])

    def look(run):
        if next(looks, None) == "finished":
            written.record("finished", ended="2020-01-01T00:00:01.000Z")

    monkeypatch.setattr("time.sleep", look)
    written.run.wait()

    first, *others = terminal.getvalue().split("\r\x1b[K")[1:]
    assert first.startswith(written.run.run_id)
    assert all(len(line.rstrip("\n")) < 50 for line in (first, *others))
    assert terminal.getvalue().endswith("\n")
    assert terminal.getvalue().count("\n") == 1


def test_shown_in_log(written, monkeypatch, clock):
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    show, short = run_progress.progress_display(), run_progress.progress_display()
    assert show is not None
    assert short is not None

    for clock.seconds in (0, 9, 11, 12, 70, 72, 73):
        show(written.run)
    written.record("finished", ended="2020-01-01T00:00:01.000Z")
    clock.seconds = 74
    show(written.run)
    clock.seconds = 9
    short(written.run)

    name = written.run.run_id
    assert log.getvalue().splitlines() == [
        f"{name}: running (11 s)",
        f"{name}: running (72 s)",
        f"{name}: finished (74 s)",
    ]


class Unread(io.StringIO):
    """Stands for a pipe whose reader has ended."""

    def write(self, text):
        raise BrokenPipeError


@pytest.mark.parametrize("log", [Unread(), io.StringIO()])
def test_shown_in_unread_log(written, monkeypatch, clock, log):
    monkeypatch.setattr("sys.stderr", log)
    with written.run.paths.metrics.open("ab") as file:
        file.write(b"\0\0\n")
    show = run_progress.progress_display()
    assert show is not None
    clock.seconds = 11.0

    show(written.run)

    line = f"{written.run.run_id}: running (11 s)\n"
    assert log.getvalue() == ("" if isinstance(log, Unread) else line)


def test_shown_in_notebook(written, monkeypatch):
    line = Line()
    monkeypatch.setattr(run_progress, "line_in_place", lambda: line)
    update = line.update

    def end_it(bundle, *, raw):
        update(bundle, raw=raw)
        written.record("finished", ended="2020-01-01T00:00:01.000Z")

    line.update = end_it
    written.run.wait()

    first, last = line.texts
    assert "running" in first
    assert "finished" in last
