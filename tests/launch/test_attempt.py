"""An attempt ends, whatever its ranks do; they are played."""

from __future__ import annotations

import errno
import itertools
import time
from types import SimpleNamespace

import pytest

from nbkit import reading
from nbkit.errors import StoreError
from nbkit.launch.supervision import attempt as attempts
from nbkit.launch.supervision.attempt import Attempt
from nbkit.launch.supervision.ranks import RemoteRank
from nbkit.store.heartbeat import Beat, Phase
from nbkit.store.record import RunState
from nbkit.store.stored_runs import StoredRun, create_run_folder


class _StuckRanks:
    """One rank that hangs where no signal reaches it."""

    lost = None

    def __init__(self):
        self.ranks = [RemoteRank(0, "n1", pid=7)]
        self.kills = 0

    def start(self):
        pass

    def wait(self, seconds):
        return []

    def beats(self):
        return [Beat(0, Phase.STARTING, 0)]

    def terminate(self):
        pass

    def kill(self):
        self.kills += 1

    def close(self):
        return self.ranks

    def print_stacks(self):
        pass


class _Journal:
    """Keeps events in memory."""

    attempt = 0
    state = RunState.RUNNING

    def __init__(self, error):
        self.error = error
        self.events = []

    def event(self, event, **details):
        self.events.append(event)

    def give_sign(self):
        pass

    def set_state(self, state, **details):
        self.state = state


@pytest.mark.parametrize(
    ("requests", "error", "ends"),
    [
        ([{"by": "user", "grace_seconds": 0.0}], None, (RunState.STOPPED, "stopped")),
        ([], StoreError("The disk is full."), (RunState.FAILED, "store")),
    ],
    ids=["stopped", "full disk"],
)
def test_a_rank_that_cannot_be_killed_does_not_keep_the_supervisor(
    small, monkeypatch, requests, error, ends
):
    monkeypatch.setattr(attempts, "_STUCK_SECONDS", 0.1)
    looks = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: next(looks) / 100)
    run = StoredRun(create_run_folder(small(hang_timeout_seconds=None)).root)
    journal, group = _Journal(error), _StuckRanks()
    asked = SimpleNamespace(look=lambda: requests)
    attempt = Attempt(run, journal, group, asked, lambda: None)

    attempt.run()

    assert group.kills > 1
    assert journal.events[-1] == "cannot_be_killed"
    state, cause = attempt.verdict()
    assert cause is not None
    assert (state, cause["kind"]) == ends


class _PausedRanks(_StuckRanks):
    """One rank that ends at the third look; before the second, time has passed."""

    def __init__(self, clock):
        super().__init__()
        self._clock = clock
        self._looks = 0

    def wait(self, seconds):
        self._looks += 1
        if self._looks == 2:
            self._clock.now += 600.0
        if self._looks < 3:
            return []
        (rank,) = self.ranks
        rank.ended_at, rank.returncode = 1.0, 1
        return [rank]


def test_a_supervisor_that_was_suspended_takes_no_rank_for_one_that_hangs(
    small, monkeypatch
):
    clock = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    run = StoredRun(create_run_folder(small(hang_timeout_seconds=60)).root)
    journal = _Journal(None)
    asked = SimpleNamespace(look=list)

    Attempt(run, journal, _PausedRanks(clock), asked, lambda: None).run()

    assert "rank_ended" in journal.events
    assert "hang" not in journal.events


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_a_file_server_that_is_silent_for_a_moment_is_asked_again_for_the_ranks(
    small, monkeypatch, number
):
    run = StoredRun(create_run_folder(small()).root)
    journal = _Journal(None)
    journal.state = RunState.STARTING
    attempt = Attempt(run, journal, _StuckRanks(), SimpleNamespace(look=list), list)
    unread = StoreError("cannot be read")
    unread.errno = number
    answers = iter([unread, {"attempt": 0}])

    def read(path):
        if isinstance(answer := next(answers), StoreError):
            raise answer
        return answer

    monkeypatch.setattr(attempts, "read_json", read)

    attempt._note_progress()

    assert (journal.error is None) is (number == errno.EIO)
    if journal.error is None:
        attempt._note_progress()
        assert journal.state is RunState.RUNNING


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_a_file_server_that_is_silent_at_the_end_of_a_run_is_asked_again(
    small, monkeypatch, number
):
    run = StoredRun(create_run_folder(small()).root)
    journal, ended = _Journal(None), _StuckRanks()
    ended.ranks = []
    attempt = Attempt(run, journal, ended, SimpleNamespace(look=list), list)
    unread = StoreError("cannot be read")
    unread.errno = number
    answers = iter([unread, {"attempt": 0, "completed": True}])

    def read(path):
        if isinstance(answer := next(answers), StoreError):
            raise answer
        return answer

    monkeypatch.setattr(attempts, "read_json", read)
    monkeypatch.setattr(reading, "_PAUSE_SECONDS", 0.0)

    state, cause = attempt.verdict()

    assert (state is RunState.FINISHED) is (number == errno.EIO)
    assert (cause is None) is (number == errno.EIO)
