"""A run's picture, replaced when the run ends or goes on."""

from __future__ import annotations

from typing import Any

import pytest

from nbkit.live.run import LiveRun
from nbkit.widgets.shown_runs import ShownRun
from tests.widgets.stored_run import WrittenRun, step


class Pictures:
    """Pictures of one run, as a page gets them."""

    def __init__(self, written: WrittenRun, **options: float) -> None:
        live = LiveRun(written.run)
        is_over = live.read()
        self.texts: list[str] = []
        self.shown = ShownRun(live, self, is_over=is_over, **options)

    def update(self, bundle: dict[str, Any], *, raw: bool) -> None:
        """Replace them."""
        assert raw
        self.texts.append(bundle["text/plain"])


@pytest.fixture
def written(tmp_path):
    written = WrittenRun(tmp_path)
    written.append(step(1))
    return written


def test_shown_run_stays_while_unreadable_and_shows_next_attempt(written):
    written.record("finished")
    pictures = Pictures(written)

    # Another file is where the run's folder was.
    folder = written.run.paths.root
    aside = folder.rename(folder.with_name("aside"))
    folder.touch()
    pictures.shown.look()
    folder.unlink()
    aside.rename(folder)
    written.submit(1)
    # Its record is half written.
    written.run.paths.record.write_text("{")
    pictures.shown.look()
    assert pictures.texts == []
    written.record("running", 1)
    pictures.shown.look()

    (text,) = pictures.texts
    assert "running, attempt 2" in text


def test_shown_run_restarted_in_same_attempt(written):
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


def test_shown_run_that_goes_on_is_replaced_now_and_then_if_it_has_changed(written):
    pictures, rare = Pictures(written, renew_seconds=0.0), Pictures(written)
    pictures.shown.look()
    assert pictures.texts == []

    written.append(step(2))
    for shown in (pictures.shown, pictures.shown, rare.shown):
        shown.look()

    (text,) = pictures.texts
    assert "Steps: 2 of 1,000" in text
    assert rare.texts == []
