"""A run that goes on is in the list of runs, however many newer ones there are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nbkit.errors import StoreError
from nbkit.server import active_runs
from nbkit.server.active_runs import ActiveRuns
from nbkit.server.run_table import StoredRunTable
from nbkit.store.record import RunState
from tests.clocks import PlayedTime
from tests.server.stored_runs import store_run

LONG = "20200101-000000-long-aaaa"


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Return a writer of runs with these numbers, newer than `LONG`, into one store."""
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    monkeypatch.setattr(active_runs, "FIRST_SECONDS", 0.0)

    def write(numbers, state="finished"):
        for number in numbers:
            store_run(tmp_path, f"20200101-{number:06d}-run-aaaa", state)

    store_run(tmp_path, LONG, "running")
    return write


def ids(look):
    return [row["run_id"] for row in look.rows]


def test_a_long_run_behind_many_short_ones_is_listed_until_it_ends(put, tmp_path):
    put(range(1, 61))
    table = StoredRunTable(None)

    look = table.poll([])

    assert len(look.rows) == 51
    assert ids(look)[-1] == LONG
    assert [run["run_id"] for run in look.active] == [LONG]
    assert ids(table.poll([], 1))[1:] == [LONG]
    store_run(tmp_path, LONG)
    assert LONG not in ids(table.poll([]))


def test_a_run_that_newer_ones_push_out_of_the_newest_stays(put):
    put(range(1, 10))
    table = StoredRunTable(None)
    assert LONG in ids(table.poll([]))

    put(range(10, 70))

    assert ids(table.poll([]))[-1] == LONG


def test_an_old_run_that_is_resumed_is_seen_at_the_next_look_at_all_runs(
    put, tmp_path, monkeypatch
):
    clock = PlayedTime(monkeypatch, "nbkit.server.active_runs")
    store_run(tmp_path, LONG)
    put(range(1, 61))
    table = StoredRunTable(None)
    assert LONG not in ids(table.poll([]))
    store_run(tmp_path, LONG, "running")
    assert LONG not in ids(table.poll([]))

    clock.seconds += 60

    assert ids(table.poll([]))[-1] == LONG


def test_of_very_many_runs_those_that_wait_are_left_out_first(put, monkeypatch):
    monkeypatch.setattr(active_runs, "MOST", 3)
    put(range(1, 61), "queued")

    found = ids(StoredRunTable(None).poll([], 1))

    assert len(found) == 3
    assert found[-1] == LONG


def test_runs_without_a_sign_of_life_leave_room_for_those_that_go_on(put, monkeypatch):
    monkeypatch.setattr(active_runs, "MOST", 3)
    rows = [SimpleNamespace(run_id=f"gone-{n}", state=RunState.UNKNOWN) for n in (1, 2)]
    rows += [SimpleNamespace(run_id="waits", state=RunState.QUEUED)]
    rows += [SimpleNamespace(run_id="goes on", state=RunState.RUNNING)]
    monkeypatch.setattr(active_runs, "list_runs", lambda: rows)

    assert ActiveRuns().ids() == {"goes on", "waits", "gone-1"}


def test_the_newest_runs_are_shown_before_all_runs_are_listed_or_where_they_cannot_be(
    put, monkeypatch
):
    put(range(1, 61))
    asked = []

    def fail():
        asked.append(True)
        message = "the file server is gone"
        raise StoreError(message)

    monkeypatch.setattr(active_runs, "list_runs", fail)
    monkeypatch.setattr(active_runs, "FIRST_SECONDS", 3600.0)
    assert len(StoredRunTable(None).poll([]).rows) == 50
    assert not asked
    monkeypatch.setattr(active_runs, "FIRST_SECONDS", 0.0)
    table = StoredRunTable(None)

    assert [len(table.poll([]).rows) for _ in range(2)] == [50, 50]
    assert len(asked) == 1
