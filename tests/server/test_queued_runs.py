"""A run that waits for its devices, as its files tell it, and one of elsewhere."""

from __future__ import annotations

import json

import pytest

from nbkit.server import rest
from nbkit.server.run_table import StoredRunTable
from nbkit.store.paths import RunPaths
from nbkit.store.record import read_json, write_json
from tests.server.stored_runs import store_run

RUN_ID = "20200101-000000-run-aaaa"
QUEUE = {
    "position": 2,
    "length": 3,
    "reason": "2 of 2 GPUs are held",
    "since": "2020-01-01T00:00:05.000Z",
}


@pytest.fixture
def paths(tmp_path, monkeypatch):
    """Return the files of a queued run, the only one of its store."""
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    return RunPaths(store_run(tmp_path, RUN_ID, "queued", stop_grace_seconds=5))


@pytest.fixture
def change(paths):
    """Return a way to change the run's record and to see its row."""

    def apply(**values):
        write_json(paths.record, {**(read_json(paths.record) or {}), **values})
        return StoredRunTable(None).poll([]).rows[0]

    return apply


def test_a_queued_run_tells_its_place_and_reason_and_can_be_stopped(change, paths):
    row = change(queue={**QUEUE, "more": 1}, launch={"devices": []})

    assert (row["state"], row["queue"], row["devices"]) == ("queued", QUEUE, [])
    assert row["cause"] is None
    status, _ = rest.stop_run(RUN_ID, None)
    assert status == 202
    assert (read_json(paths.stop) or {})["by"] == "user"


def test_a_place_that_is_damaged_is_missing_and_said(change):
    row = change(queue={**QUEUE, "since": "yesterday"})

    assert (row["state"], row["queue"]) == ("queued", None)
    assert "ValueError" in row["cause"]
    assert change(queue=None)["cause"] is None


def test_devices_are_those_that_a_run_holds(change):
    assert change()["devices"] == []
    row = change(state="running", launch={"devices": ["GPU-1"]}, queue=QUEUE)

    assert row["devices"] == ["GPU-1"]
    assert row["queue"] is None


def test_an_imported_run_says_from_where(change, paths):
    assert change()["imported_from"] is None

    paths.imported.write_text(json.dumps({"host": "node7"}))

    assert change(state="finished")["imported_from"] == "node7"
