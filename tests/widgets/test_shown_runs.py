"""A run's picture, where its files cannot be read for a while."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any

import pytest

from nbkit.live.run import LiveRun
from nbkit.widgets import shown_runs
from nbkit.widgets.shown_runs import _Shown
from tests.widgets.stored_run import WrittenRun, step


class Pictures:
    """Pictures of one run, as a page gets them."""

    def __init__(self, written: WrittenRun) -> None:
        live = LiveRun(written.run)
        is_over = live.read()
        self.texts: list[str] = []
        self.shown = _Shown(live, self, is_over=is_over)

    def update(self, bundle: dict[str, Any], *, raw: bool) -> None:
        """Replace them."""
        assert raw
        self.texts.append(bundle["text/plain"])


@pytest.fixture
def written(tmp_path):
    written = WrittenRun(tmp_path)
    written.append(step(1))
    return written


@contextmanager
def unreadable(written):
    """Have another file where the run's folder was."""
    folder = written.run.paths.root
    aside = folder.rename(folder.with_name("aside"))
    folder.touch()
    yield
    folder.unlink()
    aside.rename(folder)


def test_the_picture_of_an_end_outlasts_a_fault_and_a_new_attempt_replaces_it(
    written, monkeypatch
):
    monkeypatch.setattr(shown_runs, "_AGAIN_SECONDS", 0)
    written.record("finished")
    pictures = Pictures(written)

    with unreadable(written):
        pictures.shown.look()
    assert pictures.texts == []
    written.submit(1)
    # Its record is half written.
    record = written.run.paths.record
    record.write_text("{")
    pictures.shown.look()
    assert pictures.texts == []
    written.record("running", 1)
    pictures.shown.look()

    (text,) = pictures.texts
    assert "running, attempt 2" in text


def test_a_run_that_is_started_again_in_the_same_attempt_is_shown_again(written):
    written.record("stopped")
    pictures = Pictures(written)
    pictures.shown.look()
    assert pictures.texts == []

    written.record("running")
    pictures.shown.look()
    written.record("finished")
    pictures.shown.look()

    running, finished = pictures.texts
    assert ": running" in running
    assert ": finished" in finished


def test_what_hides_a_run_under_way_is_said_once_until_the_run_is_back(
    written, monkeypatch
):
    monkeypatch.setattr(shown_runs, "_AGAIN_SECONDS", 0)
    pictures = Pictures(written)

    with unreadable(written):
        pictures.shown.look()
        pictures.shown.look()
    pictures.shown.look()
    pictures.shown.look()
    written.record("finished")
    pictures.shown.look()

    why, running, finished = pictures.texts
    assert "cannot be read" in why
    assert ": running" in running
    assert ": finished" in finished


def test_a_run_that_cannot_be_read_is_left_alone_for_some_seconds(written, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(shown_runs.time, "monotonic", lambda: now[0])
    pictures = Pictures(written)
    with unreadable(written):
        pictures.shown.look()
    written.record("finished")

    pictures.shown.look()
    early = len(pictures.texts)
    now[0] += 5.0
    pictures.shown.look()

    assert (early, len(pictures.texts)) == (1, 2)
