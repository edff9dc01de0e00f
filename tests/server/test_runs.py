"""The list of runs: what is read again, what is not, and a store that hangs."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from jupyter_client.provisioning.local_provisioner import LocalProvisioner

from nbkit.errors import StoreError
from nbkit.reading import read_file
from nbkit.server import rest
from nbkit.server.monitor import Monitor, Settings
from nbkit.server.run_table import StoredRunTable
from nbkit.server.sessions import Kernels
from nbkit.server.store_thread import StoreThread
from nbkit.server.tensorboards import TensorBoards
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity
from nbkit.telemetry.holders import Kernel
from tests.launch.conftest import store
from tests.server.stored_runs import store_run

__all__ = ["store"]

NEWEST = "20200101-009999-run-aaaa"


@pytest.fixture
def many(store: Path) -> Path:
    """Return a store of 500 runs that have ended."""
    return _ended_runs(store, 500)


@pytest.fixture
def some(store: Path) -> Path:
    """Return a store of 60 runs that have ended."""
    return _ended_runs(store, 60)


def _ended_runs(store: Path, number: int) -> Path:
    for index in range(10_000 - number, 10_000):
        store_run(store, f"20200101-{index:06d}-run-aaaa")
    long_ago = time.time() - 60
    os.utime(store / "runs", (long_ago, long_ago))
    return store / "runs"


def test_of_many_runs_only_the_newest_are_read_whole_and_each_once(many, monkeypatch):
    opened = _count_opened(monkeypatch, many)
    table = StoredRunTable(None)

    first = table.poll([])
    once = dict(opened)
    second = table.poll([])

    assert len(first.rows) == 50
    assert first.rows[0]["run_id"] == "20200101-009999-run-aaaa"
    assert first.rows[0]["state"] == "finished"
    assert second.rows == first.rows
    assert len(once) == 50
    assert opened == once


def test_a_run_that_is_new_or_changed_is_seen(some):
    table = StoredRunTable(None)
    table.poll([])
    new = some / "20200102-000000-run-aaaa"
    new.mkdir()
    changed = some / "20200101-009998-run-aaaa" / "record.json"
    record = json.loads(changed.read_text())
    changed.write_text(json.dumps({**record, "name": "another \u202eevil\u202c"}))

    rows = {row["run_id"]: row for row in table.poll([]).rows}

    assert len(rows) == 50
    assert rows[new.name]["state"] == "starting"
    # A browser would show it as "another live".
    assert rows["20200101-009998-run-aaaa"]["name"] == r"another \u202eevil\u202c"


def test_a_run_whose_supervisor_is_gone_is_lost_without_a_word(store):
    folder = store_run(store, NEWEST, "running")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        supervisor = ProcessIdentity.of(process.pid).to_dict()
        for file in (folder / "record.json", folder / "submission.json"):
            values = json.loads(file.read_text())
            file.write_text(json.dumps({**values, "supervisor": supervisor}))
        table = StoredRunTable(None)
        assert table.poll([]).rows[0]["state"] == "running"

    look = table.poll([])

    assert look.rows[0]["state"] == "lost"
    # When it gave its last sign.
    assert look.rows[0]["ended"] > look.rows[0]["started"]
    assert "without a final record" in look.rows[0]["cause"]
    assert look.active == []


def _step(**values: object) -> str:
    step = {"kind": "step", "step": 1, "loss": 1, "images": 8, "step_time_seconds": 2}
    return json.dumps({**step, **values}) + "\n"


@pytest.mark.parametrize(
    ("name", "text", "missing"),
    [
        ("record.json", "{", None),
        ("record.json", '{"state": "dancing", "attempt": 0}', None),
        ("submission.json", '{"devices": []}', None),
        ("config.json", "[]", "total_steps"),
        ("metrics.jsonl", "half\n", "step"),
        ("metrics.jsonl", _step(images="eight"), "images_per_second"),
        ("record.json", {"time": {"ended": "yesterday"}}, "ended"),
        ("record.json", {"time": {"ended": 5}}, "ended"),
    ],
)
def test_run_table_shows_damaged_runs_and_all_others(some, name, text, missing):
    file = some / NEWEST / name
    if isinstance(text, dict):
        text = json.dumps({**json.loads(file.read_text()), **text})
    file.write_text(text)

    rows = StoredRunTable(None).poll([]).rows

    assert len(rows) == 50
    assert rows[0]["cause"]
    assert rows[0]["state"] == ("finished" if missing else "lost")
    if missing:
        assert rows[0]["name"] == "a run"
        assert rows[0][missing] is None
    assert [row["cause"] for row in rows[1:]] == [None] * 49


@pytest.mark.parametrize("text", ['{"pid": 1}', '{"pid": []}', "half"])
def test_run_table_finds_processes_beside_damaged_files(some, text):
    folder = store_run(some.parent, NEWEST, "running")
    process = RunPaths(folder).rank(0, 0).process
    process.parent.mkdir(parents=True)
    process.write_text(text)

    look = StoredRunTable(None).poll([])

    assert len(look.rows) == 50
    assert look.rows[0]["state"] == "running"
    (run,) = look.active
    assert run["pids"] == [os.getpid()]


def test_a_run_that_could_not_be_read_is_read_again(some, monkeypatch):
    table = StoredRunTable(None)
    with monkeypatch.context() as context:
        context.setattr("nbkit.server.run_table.progress", _fails)
        assert "stale" in table.poll([]).rows[0]["cause"]

    assert table.poll([]).rows[0]["cause"] is None


def _fails(*_: object) -> None:
    message = "stale file handle"
    raise OSError(message)


def test_a_run_knows_its_notebook_also_when_the_kernel_is_gone(some, tmp_path):
    notebook = tmp_path / "a" / "b.ipynb"
    notebook.parent.mkdir()
    notebook.touch()
    submission = some / NEWEST / "submission.json"
    values = json.loads(submission.read_text())
    submission.write_text(json.dumps({**values, "notebook": str(notebook)}))

    assert StoredRunTable(tmp_path).poll([]).rows[0]["notebook"] == "a/b.ipynb"
    notebook.unlink()
    assert StoredRunTable(tmp_path).poll([]).rows[0]["notebook"] is None


def test_a_link_out_of_the_store_is_not_listed(some, tmp_path):
    outside = store_run(tmp_path / "outside", "20200102-000000-run-bbbb")
    (some / outside.name).symlink_to(outside)

    rows = StoredRunTable(None).poll([]).rows

    assert len(rows) == 50
    assert rows[0]["run_id"] == NEWEST


def test_another_users_run_is_shown_and_not_stopped(some, monkeypatch):
    folder = store_run(some.parent, NEWEST, "running")
    uid = os.getuid()
    # From now on, this process is somebody else.
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)

    row = StoredRunTable(None).poll([]).rows[0]
    status, answer = rest.stop_run(NEWEST, None)

    assert row["own"] is False
    assert status == 403
    assert "belongs to another user" in answer["message"]
    assert not RunPaths(folder).stop.exists()


def test_kernels_that_cannot_be_listed_hide_no_run(some, caplog):
    async def fail() -> list[Kernel]:
        message = "no sessions"
        raise RuntimeError(message)

    async def ask() -> list[int]:
        log = logging.getLogger("nbkit.test")
        boards = TensorBoards(60, log)
        monitor = Monitor(Settings(), StoredRunTable(None), fail, boards, log)
        try:
            return [len((await monitor.poll()).rows) for _ in range(2)]
        finally:
            await monitor.close()

    assert asyncio.run(ask()) == [50, 50]
    assert [record.getMessage() for record in caplog.records] == [
        "nbkit: kernels cannot be listed: RuntimeError: no sessions"
    ]


def test_the_pid_of_a_kernel_that_has_ended_is_not_told():
    provisioner = LocalProvisioner()
    kernel = SimpleNamespace(provisioner=provisioner)
    manager = SimpleNamespace(
        list_kernel_ids=lambda: ["k"], get_kernel=lambda _: kernel
    )
    kernels = Kernels(manager, SimpleNamespace(list_sessions=list))

    def pid_told() -> int | None:
        [told] = asyncio.run(kernels.running())
        return told.pid

    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        provisioner.process, provisioner.pid = process, process.pid
        assert pid_told() == process.pid

    assert process.returncode == 0
    assert pid_told() is None


@pytest.mark.parametrize(
    ("root", "hidden", "expected"),
    [
        (".", False, "store/runs/20200101-009999-run-aaaa"),
        ("store/runs", False, "20200101-009999-run-aaaa"),
        ("elsewhere", False, None),
    ],
)
def test_a_folder_is_named_as_the_server_shows_it(some, root, hidden, expected):
    table = StoredRunTable(some.parents[1] / root, allow_hidden=hidden)

    row = table.poll([]).rows[0]
    assert row["folder"] == expected
    assert row["folder_path"] == str(some / NEWEST)


def test_a_hidden_folder_is_named_only_where_the_server_shows_it(tmp_path, monkeypatch):
    home = tmp_path / ".local" / "nbkit"
    folder = home / "runs" / "20200101-000000-run-aaaa"
    folder.mkdir(parents=True)
    monkeypatch.setenv("NBKIT_HOME", str(home))

    (closed,) = StoredRunTable(tmp_path).poll([]).rows
    (shown,) = StoredRunTable(tmp_path, allow_hidden=True).poll([]).rows
    assert closed["folder"] is None
    assert shown["folder"] == ".local/nbkit/runs/20200101-000000-run-aaaa"


def test_a_store_that_hangs_holds_only_its_thread():
    hang = threading.Event()

    async def ask() -> None:
        thread = StoreThread(patience_seconds=0.4)
        try:
            assert await thread.do(lambda: 1) == 1
            with pytest.raises(StoreError, match="has not responded for 0 s"):
                await thread.do(hang.wait)
            with pytest.raises(StoreError, match="file server"):
                await thread.do(lambda: 2)
            hang.set()
            assert await _answer(thread) == 3
        finally:
            hang.set()
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

    def count(path: Path) -> bytes:
        if folder in path.parents:
            opened[path.parent.name] = opened.get(path.parent.name, 0) + 1
        return read_file(path)

    monkeypatch.setattr("nbkit.store.record.read_file", count)
    return opened
