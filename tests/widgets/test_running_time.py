"""How long a run has run is one number, wherever it is shown."""

from __future__ import annotations

import pytest

from nbkit.live.rows import run_numbers
from nbkit.live.run import LiveRun
from nbkit.live.running_time import running_time
from nbkit.store.record import RunState
from nbkit.widgets.picture import picture
from tests.widgets.stored_run import WrittenRun

BEGAN = 1577836800.0
"""2020-01-01 00:00 UTC."""


def at(minute, second=0):
    return f"2020-01-01T00:{minute:02}:{second:02}.000Z"


def attempt(number, started, ended):
    return {"number": number, "started": started, "ended": ended}


TWICE = [attempt(0, at(1), at(3)), attempt(1, at(10), at(11))]


def test_time_between_attempts_and_in_the_queue_is_left_out():
    times = {"started": at(10), "running": at(10, 30), "ended": at(11)}
    record = {"time": times, "attempts": TWICE}

    ran = running_time(record, {}, RunState.FINISHED)

    assert (ran.ended_seconds, ran.since) == (180, None)
    assert ran.at(BEGAN + 9999) == 180


@pytest.mark.parametrize(
    ("state", "started", "since"),
    [
        # It waits again, then has its devices again.
        (RunState.QUEUED, None, None),
        (RunState.RUNNING, at(10), BEGAN + 600),
        # Its supervisor has started the ranks again, and kept the devices.
        (RunState.RUNNING, at(1), BEGAN + 180),
    ],
)
def test_what_goes_on_is_added_to_attempts_that_have_ended(state, started, since):
    times = {"started": started, "running": started, "ended": None}

    ran = running_time({"time": times, "attempts": TWICE[:1]}, {}, state)

    assert ran == (120, since)
    assert ran.at(BEGAN + 660) == (120 if since is None else 120 + 660 + BEGAN - since)


@pytest.mark.parametrize("recorded", ["queued", "stopped"])
def test_a_requeued_run_starts_before_its_record_is_written(recorded):
    times = {"started": at(1), "running": at(1), "ended": None}
    record = {"state": recorded, "time": times, "attempts": TWICE[:1]}

    assert running_time(record, {}, RunState.STARTING) == (120, None)


def test_between_the_attempts_of_a_resumed_run_no_time_is_running_time(tmp_path):
    written = WrittenRun(tmp_path)
    written.submit(1)
    times = {"started": at(1), "running": at(1, 30), "ended": at(3)}
    # Of the attempt before: the new supervisor has not written yet.
    written.record("stopped", 0, time=times, attempts=TWICE[:1])
    live = LiveRun(written.run)
    live.read()

    head = live.snapshot()["head"]
    assert (head["ran_seconds"], head["runs_since"]) == (120, None)
    assert run_numbers(written.run)["duration_seconds"] == 120


def test_what_a_record_does_not_tell_is_unknown():
    running = {"time": {"started": at(10), "ended": None}, "attempts": TWICE[:1]}
    stopped_in_the_queue = {
        "time": {"started": None, "ended": at(3)},
        "attempts": [attempt(0, None, at(3))],
    }

    assert running_time({}, {}, RunState.STARTING).at(BEGAN) is None
    for state in (RunState.LOST, RunState.STOPPED):
        assert running_time(running, {}, state).at(BEGAN) is None
    assert running_time(stopped_in_the_queue, {}, RunState.STOPPED).at(BEGAN) is None


def test_view_picture_and_table_have_the_same_duration(tmp_path):
    written = WrittenRun(tmp_path)
    times = {"started": at(10), "running": at(10, 30), "ended": at(11)}
    written.record("stopped", 1, time=times, attempts=TWICE)
    live = LiveRun(written.run)
    live.read()

    assert live.snapshot()["head"]["ran_seconds"] == 180
    assert run_numbers(written.run)["duration_seconds"] == 180
    assert "Duration: 3 min (2 attempts)" in picture(live)["text/plain"]
