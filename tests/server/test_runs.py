"""The list of runs: what is read again, what is not, and a store that hangs."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from pathlib import Path

import pytest

import nbkit
from nbkit.errors import StoreError
from nbkit.server.runs import RunTable
from nbkit.server.store_thread import StoreThread
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState
from tests.launch.conftest import plugins, small, store
from tests.waiting import wait_until

__all__ = ["plugins", "small", "store"]


@pytest.fixture
def many(store: Path) -> Path:
    """Return a store of 10,000 runs that have ended; only the newest have files."""
    return _ended_runs(store, 10_000)


@pytest.fixture
def some(store: Path) -> Path:
    """Return a store of 60 runs that have ended."""
    return _ended_runs(store, 60)


def _ended_runs(store: Path, number: int) -> Path:
    me = ProcessIdentity.of().to_dict()
    submission = {"attempt": 0, "supervisor": me, "owner": me, "devices": []}
    record = {
        "attempt": 0,
        "state": "finished",
        "name": "a run",
        "supervisor": me,
        "time": {"started": "2020-01-01T00:00:00.000Z", "ended": None},
    }
    for index in range(10_000 - number, 10_000):
        folder = store / "runs" / f"20200101-{index:06d}-run-aaaa"
        folder.mkdir(parents=True)
        if index >= 9_900:
            (folder / "submission.json").write_text(json.dumps(submission))
            (folder / "record.json").write_text(json.dumps(record))
            (folder / "config.json").write_text('{"steps": 10}')
    long_ago = time.time() - 60
    os.utime(store / "runs", (long_ago, long_ago))
    return store / "runs"


def test_only_the_newest_of_many_runs_are_read_and_each_once(many, monkeypatch):
    opened = _count_opened(monkeypatch, many)
    table = RunTable(None)

    first = table.look([])
    once = dict(opened)
    second = table.look([])

    assert len(first.rows) == 50
    assert first.rows[0]["run_id"] == "20200101-009999-run-aaaa"
    assert first.rows[0]["state"] == "finished"
    assert second.rows == first.rows
    assert len(once) == 50
    assert opened == once


def test_a_run_that_is_new_or_changed_is_seen(some):
    table = RunTable(None)
    table.look([])
    new = some / "20200102-000000-run-aaaa"
    new.mkdir()
    changed = some / "20200101-009998-run-aaaa" / "record.json"
    record = json.loads(changed.read_text())
    changed.write_text(json.dumps({**record, "name": "another name"}))

    rows = {row["run_id"]: row for row in table.look([]).rows}

    assert len(rows) == 50
    assert rows[new.name]["state"] == "starting"
    assert rows["20200101-009998-run-aaaa"]["name"] == "another name"


def test_a_run_whose_supervisor_is_gone_is_lost_without_a_word(store, plugins, small):
    table = RunTable(None)
    run = nbkit.launch(small(steps=100_000))
    wait_until(lambda: run.state is RunState.RUNNING, "a run")
    assert table.look([]).rows[0]["state"] == "running"
    supervisor = run.record["supervisor"]["pid"]
    os.kill(supervisor, 9)
    wait_until(lambda: run.state is RunState.LOST, "its end")

    look = table.look([])
    nbkit.sweep(run.run_id)

    assert look.rows[0]["state"] == "lost"
    assert "without a last word" in look.rows[0]["cause"]
    assert look.active == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("record.json", "{"),
        ("record.json", "[]"),
        ("record.json", '{"state": "dancing", "attempt": 0}'),
        ("submission.json", "{}x"),
        ("config.json", "\x00"),
        ("metrics.jsonl", "{}\n"),
        ("metrics.jsonl", "half\n"),
    ],
)
def test_a_damaged_run_hides_no_other(some, name: str, text: str):
    (some / "20200101-009999-run-aaaa" / name).write_text(text)

    rows = RunTable(None).look([]).rows

    assert len(rows) == 50
    assert rows[0]["state"] == "lost"
    assert rows[0]["cause"]
    assert {row["state"] for row in rows[1:]} == {"finished"}


def test_progress_is_the_end_of_a_long_file(some):
    metrics = some / "20200101-009999-run-aaaa" / "metrics.jsonl"
    lines = [
        {"kind": "step", "step": n, "loss": 1 / n, "images": 8, "step_time_seconds": 2}
        for n in range(1, 20_001)
    ]
    lines[-5]["step_time_seconds"] = 100  # a stall is no rate
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"ki')

    row = RunTable(None).look([]).rows[0]

    assert row["step"] == 20_000
    assert row["loss"] == pytest.approx(1 / 20_000)
    assert row["images_per_second"] == 4.0


@pytest.mark.parametrize(
    ("root", "hidden", "expected"),
    [
        (".", False, "store/runs/20200101-009999-run-aaaa"),
        ("store/runs", False, "20200101-009999-run-aaaa"),
        ("elsewhere", False, None),
    ],
)
def test_a_folder_is_named_as_the_server_shows_it(some, root, hidden, expected):
    table = RunTable(some.parents[1] / root, allow_hidden=hidden)

    assert table.look([]).rows[0]["folder"] == expected


def test_a_hidden_folder_is_named_only_where_the_server_shows_it(tmp_path, monkeypatch):
    home = tmp_path / ".local" / "nbkit"
    folder = home / "runs" / "20200101-000000-run-aaaa"
    folder.mkdir(parents=True)
    monkeypatch.setenv("NBKIT_HOME", str(home))

    (closed,) = RunTable(tmp_path).look([]).rows
    (shown,) = RunTable(tmp_path, allow_hidden=True).look([]).rows
    assert closed["folder"] is None
    assert shown["folder"] == ".local/nbkit/runs/20200101-000000-run-aaaa"


def test_a_store_that_hangs_holds_only_its_thread():
    hang = threading.Event()

    async def ask() -> None:
        thread = StoreThread(patience_seconds=0.2)
        try:
            assert await thread.do(lambda: 1) == 1
            with pytest.raises(StoreError, match="has not answered for 0 s"):
                await thread.do(hang.wait)
            with pytest.raises(StoreError, match="file server"):
                await thread.do(lambda: 2)
            hang.set()
            assert await _answer(thread) == 3
        finally:
            hang.set()
            thread.close()

    asyncio.run(ask())


def test_what_a_job_raises_is_raised_where_it_was_asked():
    async def ask() -> None:
        thread = StoreThread()
        try:
            with pytest.raises(ZeroDivisionError):
                await thread.do(lambda: 1 / 0)
            assert await thread.do(lambda: 1) == 1
        finally:
            thread.close()

    asyncio.run(ask())


async def _answer(thread: StoreThread) -> int:
    while True:
        try:
            return await thread.do(lambda: 3)
        except StoreError:
            await asyncio.sleep(0)


def _count_opened(monkeypatch, folder: Path) -> dict[str, int]:
    """Count how often files of each run are read."""
    opened: dict[str, int] = {}
    read_bytes = Path.read_bytes

    def count(path: Path) -> bytes:
        if folder in path.parents:
            opened[path.parent.name] = opened.get(path.parent.name, 0) + 1
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", count)
    return opened
