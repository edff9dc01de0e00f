"""Rows of ended runs are kept, and never believed against the files themselves."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from nbkit.store import run_list
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState, write_json
from tests.hostile.strangers import as_stranger, needs_root

COUNT = 8
SECONDS = 1_700_000_000


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Write ended runs of some time ago into a store; return their folders."""
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))
    folders = [
        tmp_path / "store" / "runs" / f"20200101-{number:06d}-it-aaaa"
        for number in range(COUNT)
    ]
    for number, folder in enumerate(folders):
        folder.mkdir(parents=True)
        write(folder / "submission.json", attempt=0, name=f"run {number}")
        write(
            folder / "record.json",
            attempt=0,
            name=f"run {number}",
            state="finished",
            supervisor=None,
            time={"started": "2020-01-01T00:00:00.000Z"},
        )
    return folders


def write(path: Path, seconds: int = SECONDS, **values: object) -> None:
    write_json(path, values)
    later = path.name == "record.json"
    for changed in (path, path.parent):
        os.utime(changed, (seconds + later, seconds + later))


@pytest.fixture
def reads(monkeypatch):
    """Return what lists the runs, and says how many records that has read."""
    real = run_list.read_newer

    def look():
        count = 0

        def counted(*arguments):
            nonlocal count
            count += 1
            return real(*arguments)

        monkeypatch.setattr(run_list, "read_newer", counted)
        return run_list.list_runs(), count

    return look


def test_what_has_ended_is_read_once(runs, reads):
    first, read = reads()
    again, read_again = reads()

    assert (read, read_again) == (COUNT, 0)
    assert again == first
    assert [row.name for row in first] == [f"run {n}" for n in reversed(range(COUNT))]
    assert {row.state for row in again} == {RunState.FINISHED}


def test_list_runs_in_parts(runs, reads, monkeypatch):
    monkeypatch.setattr(run_list, "RUNS_PER_TASK", 3)

    listed, read = reads()

    assert read == COUNT
    assert [row.name for row in listed] == [f"run {n}" for n in reversed(range(COUNT))]
    assert reads() == (listed, 0)


def test_list_runs_changed_and_removed(runs, reads):
    reads()
    record = runs[3] / "record.json"
    other = json.loads(record.read_text()) | {"state": "failed"}
    write(record, SECONDS + 60, **other)
    shutil.rmtree(runs[5])

    rows, read = reads()

    assert read == 1
    assert [row.run_id for row in rows if row.state is RunState.FAILED] == [
        runs[3].name
    ]
    assert runs[5].name not in {row.run_id for row in rows}


def test_list_runs_active_run(runs, reads):
    reads()
    write(runs[0] / "submission.json", SECONDS + 60, attempt=1, name="run 0")

    for _ in range(2):
        rows, read = reads()
        assert read == 1 or rows[-1].state is not RunState.FINISHED


def test_list_runs_resumed_run_has_its_first_start(runs):
    first, second = (f"2020-01-0{day}T00:00:00.000Z" for day in (1, 2))
    attempts = [{"started": first}, {"started": None}]
    for attempt, time in ((1, {"started": second}), (0, {})):
        values = {"attempt": attempt, "state": "running", "attempts": attempts}
        own = {"supervisor": ProcessIdentity.of().to_dict()}
        write(runs[0] / "submission.json", SECONDS + 60, attempt=1, **own)
        write(runs[0] / "record.json", SECONDS + 60, **values, **own, time=time)

        *_, row = run_list.list_runs()

        assert row.started == first


@needs_root
def test_list_runs_read_only_store(runs, reads, tmp_path):
    def times():
        return {it: it.stat().st_mtime_ns for it in (tmp_path / "store").rglob("*")}

    before = times()

    with as_stranger(tmp_path / "store"):
        with pytest.raises(PermissionError):
            (tmp_path / "store" / "runs" / "new").mkdir()
        first, read = reads()
        again, read_again = reads()

    assert (read, read_again) == (COUNT, 0)
    assert [row.name for row in again] == [f"run {n}" for n in reversed(range(COUNT))]
    assert again == first
    assert times() == before


def test_list_runs_fresh_record(runs, reads):
    os.utime(runs[2])

    reads()

    assert reads()[1] == 1


def test_list_runs_of_some_ids(runs, reads, monkeypatch):
    first, third = runs[0].name, runs[2].name
    everything, _ = reads()

    monkeypatch.setattr(run_list, "list_run_names", lambda: 1 / 0)
    some = run_list.list_runs([third, "20200101-999999-gone-aaaa", first, third])

    assert [row.run_id for row in some] == [third, first, third]
    assert set(some) <= set(everything)


def test_list_runs_of_some_keeps_others(runs, reads):
    reads()
    third = runs[2].name
    run_list.list_runs([third])

    assert reads()[1] == 0
