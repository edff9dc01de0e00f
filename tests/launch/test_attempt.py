"""An attempt ends, whatever its ranks do; they are played, and so is the clock."""

from __future__ import annotations

import errno
import itertools
import signal
import time
from types import SimpleNamespace

import pytest

from nbkit.errors import StoreError
from nbkit.launch.supervision import attempt as attempts
from nbkit.launch.supervision.attempt import Attempt
from nbkit.launch.supervision.ranks import WatchedRank
from nbkit.store.heartbeat import Beat, Phase
from nbkit.store.record import RunState, write_json
from nbkit.store.stored_runs import StoredRun, create_run_folder


class Ranks:
    """Ranks that stand still where no signal reaches them, or end at a look."""

    lost = None

    def __init__(self, *beats, ends_at=None, returncode=0, on_look=lambda look: None):
        self.ranks = [WatchedRank(rank, "n1", pid=7) for rank in range(len(beats) or 1)]
        self.kills = 0
        self._beats = [*beats] or [Beat(0, Phase.STARTING, 0)]
        self._ends_at, self._returncode, self._on_look = ends_at, returncode, on_look
        self._looks = 0

    def start(self):
        pass

    def wait(self, seconds):
        self._looks += 1
        self._on_look(self._looks)
        if self._looks != self._ends_at:
            return []
        for rank in self.ranks:
            rank.ended_at, rank.returncode = 1.0, self._returncode
        return self.ranks

    def beats(self):
        return self._beats

    def terminate(self):
        pass

    def kill(self):
        self.kills += 1

    def close(self):
        return [rank for rank in self.ranks if rank.ended_at is None]

    def print_stacks(self):
        pass


class Journal:
    """Keeps events in memory."""

    attempt = 0

    def __init__(self, error=None, state=RunState.RUNNING):
        self.error = error
        self.state = state
        self.events = []

    def event(self, event, **details):
        self.events.append(event)

    def write_heartbeat(self):
        pass

    def set_state(self, state, **details):
        self.state = state


@pytest.fixture
def attempt_of(small):
    """Return a maker of attempts."""

    def make(ranks, journal, requests=(), **fields):
        run = StoredRun(create_run_folder(small(**fields)).root)
        asked = SimpleNamespace(look=lambda: list(requests))
        return Attempt(run, journal, ranks, asked, lambda: None), run.paths

    return make


@pytest.fixture
def hasty_clock(monkeypatch):
    """Let every question for the time take a second."""
    seconds = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(seconds)))


@pytest.mark.parametrize(
    ("requests", "error", "ends"),
    [
        ([{"by": "user", "grace_seconds": 0.0}], None, (RunState.STOPPED, "stopped")),
        ([], StoreError("The disk is full."), (RunState.FAILED, "store")),
    ],
    ids=["stopped", "full disk"],
)
def test_attempt_whose_rank_cannot_be_killed(
    attempt_of, hasty_clock, requests, error, ends
):
    journal, ranks = Journal(error), Ranks()
    attempt, _ = attempt_of(ranks, journal, requests, hang_timeout_seconds=None)

    attempt.run()

    assert ranks.kills > 1
    assert journal.events[-1] == "cannot_be_killed"
    state, cause = attempt.verdict()
    assert (state, (cause or {})["kind"]) == ends


def test_attempt_that_is_stopped_sooner_after_a_rank_has_ended(attempt_of, hasty_clock):
    requests = [{"by": "user", "grace_seconds": 10_000.0}]

    def look(number):
        if number == 3:
            ranks.ranks[0].ended_at, ranks.ranks[0].returncode = 1.0, 143
            requests.append({"by": "user", "grace_seconds": 0.0})

    ranks = Ranks(*[Beat(0, Phase.COMPUTE, 0)] * 2, on_look=look)
    fields = {"task": "script", "gpus": 2, "hang_timeout_seconds": None}
    attempt, _ = attempt_of(ranks, Journal(), requests, **fields)

    attempt.run()

    assert time.monotonic() < 1000


class SavingRanks(Ranks):
    """Two ranks of which one saves when it is asked to end, and the other ends."""

    def wait(self, seconds):
        self._looks += 1
        number = {3: 1, 60: 0}.get(self._looks)
        if number is None:
            return []
        rank = self.ranks[number]
        rank.ended_at, rank.returncode = 1.0, -signal.SIGTERM * number
        return [rank]


def test_attempt_whose_rank_saves_in_its_grace_period(attempt_of, hasty_clock):
    ranks = SavingRanks(*[Beat(1, Phase.COMPUTE, 1)] * 2)
    request = {"by": "user", "grace_seconds": 3600.0}
    fields = {"task": "script", "gpus": 2, "hang_timeout_seconds": None}
    attempt, _ = attempt_of(ranks, Journal(), [request], **fields)

    attempt.run()

    assert ranks.kills == 0
    assert attempt.verdict()[0] is RunState.STOPPED


@pytest.mark.parametrize(("task", "rank"), [("train", None), ("function", 1)])
def test_attempt_that_hangs_on_gpus(attempt_of, hasty_clock, task, rank):
    # Their first exchange hangs: no GPU has finished a step.
    ranks = Ranks(Beat(4, Phase.COMPUTE, 9), Beat(1, Phase.COMPUTE, 8))
    attempt, paths = attempt_of(ranks, Journal(), gpus=2, hang_timeout_seconds=60)
    worker = {"device_type": "cuda", "task": task, "attempt": 0}
    write_json(paths.worker, worker)
    for number in range(2):
        log = paths.rank(0, number).stderr
        log.parent.mkdir(parents=True)
        log.touch()

    attempt.run()

    # What only a training's GPUs have finished is known.
    assert attempt.cause is not None
    assert (attempt.cause["kind"], attempt.cause["rank"]) == ("hang", rank)


def test_attempt_whose_supervisor_was_suspended(attempt_of, monkeypatch):
    clock = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)

    def suspend(look):
        clock.now += 600.0 * (look == 2)

    journal, ranks = Journal(), Ranks(ends_at=3, returncode=1, on_look=suspend)
    attempt, _ = attempt_of(ranks, journal, hang_timeout_seconds=60)
    attempt.run()

    assert "rank_ended" in journal.events
    assert "hang" not in journal.events


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
@pytest.mark.parametrize("state", [RunState.STARTING, RunState.RUNNING])
def test_attempt_file_server_silent(attempt_of, monkeypatch, state, number):
    unread = StoreError("cannot be read")
    unread.errno = number
    answers = itertools.chain([unread], itertools.repeat({"attempt": 0}))

    def read(path):
        if isinstance(answer := next(answers), StoreError):
            raise answer
        return {**answer, "completed": True}

    monkeypatch.setattr(attempts, "read_json", read)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    ranks = Ranks(Beat(9, Phase.DONE, 9), ends_at=3)
    attempt, _ = attempt_of(ranks, Journal(state=state))

    attempt.run()

    ended, cause = attempt.verdict()
    is_finished = number == errno.EIO
    assert ended is (RunState.FINISHED if is_finished else RunState.FAILED)
    assert is_finished or (cause or {})["kind"] == "store"
