"""An attempt ends, whatever its ranks do; they are played."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nbkit.errors import StoreError
from nbkit.launch import attempt as attempts
from nbkit.launch.attempt import Attempt
from nbkit.launch.ranks import RemoteRank
from nbkit.store.heartbeat import Beat, Phase
from nbkit.store.record import RunState
from nbkit.store.runs import StoredRun, create_run_folder


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
