"""A user's processes ask Slurm once for all of them, and believe nothing too old."""

from __future__ import annotations

import json
import sqlite3
import threading

import pytest

from nbkit.store import cache, jobs
from nbkit.store.cache import Cache, ask_shared
from nbkit.store.jobs import find_job
from nbkit.store.slurm import SlurmSilentError
from tests.waiting import wait_until

DISABLED = "Slurm accounting storage is disabled"


@pytest.fixture
def another_process(monkeypatch):
    """Return what forgets all that this process has heard."""
    return lambda: monkeypatch.setattr(jobs, "_clusters", {})


def test_find_job_shared_answer(slurm, clock, another_process, tmp_path):
    slurm.tell("squeue", "7|PENDING|N/A||Priority")
    for _ in range(3):
        another_process()
        assert find_job("7").reason == "Priority"
        clock[0] += 1
    assert len(slurm.calls("squeue")) == 1

    slurm.tell("squeue", "7|RUNNING|1795371329|n1|None")
    clock[0] += 3
    another_process()
    assert find_job("7").state == "RUNNING"
    assert len(slurm.calls("squeue")) == 2
    assert {
        path.stat().st_mode & 0o077 for path in (tmp_path / "cache").rglob("*")
    } == {0}


def test_find_job_newer_than_answer(slurm, clock, another_process):
    slurm.tell("squeue", "7|PENDING|N/A||Priority")
    slurm.tell("sacct", status=1, words=DISABLED)
    find_job("7")
    clock[0] += 1
    another_process()

    assert find_job("8", submitted_at=clock[0]) is None
    clock[0] += 5
    slurm.tell("squeue", "8|RUNNING|1795371329|n1|None")
    assert find_job("8", submitted_at=clock[0] - 5).state == "RUNNING"


def test_find_job_old_job_missing(slurm, clock, another_process):
    slurm.tell("squeue", "7|PENDING|N/A||Priority")
    slurm.tell("sacct", status=1, words=DISABLED)
    find_job("7")
    another_process()

    an_hour_ago = clock[0] - 3600
    find_job("3", submitted_at=an_hour_ago)

    assert find_job("3", submitted_at=an_hour_ago).state == jobs.GONE
    assert len(slurm.calls("squeue")) == 1


def test_find_job_named_before(slurm, clock, another_process, monkeypatch):
    slurm.tell("squeue", "7|RUNNING|1795371329|n1|None")
    find_job("7")
    mine = jobs._clusters
    clock[0] += 5
    slurm.tell("squeue")
    slurm.tell("sacct", status=1, words=DISABLED)
    another_process()
    find_job("8")
    clock[0] += 1
    monkeypatch.setattr(jobs, "_clusters", mine)

    assert find_job("7") is not None
    assert wait_until(lambda: find_job("7").state == jobs.GONE, "its end")
    assert len(slurm.calls("squeue")) == 2


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the cache folder of this test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "nbkit"


def shared(ask, *, limit_seconds: float = 60.0) -> str:
    return ask_shared(
        "x", ask, max_age_seconds=5, limit_seconds=limit_seconds, error=SlurmSilentError
    ).text


def fail() -> str:
    message = "squeue has not answered"
    raise SlurmSilentError(message)


@pytest.mark.parametrize("fails", [False, True])
def test_ask_shared_at_once(folder, monkeypatch, fails):
    asked, waiting, go = [], [], threading.Event()
    connect = sqlite3.connect

    def counted(*arguments, **options):
        waiting.append(1)
        return connect(*arguments, **options)

    monkeypatch.setattr(cache.sqlite3, "connect", counted)

    def ask() -> str:
        asked.append(1)
        assert go.wait(60)
        return fail() if fails else "answer"

    def look() -> None:
        try:
            found.append(shared(ask))
        except SlurmSilentError as error:
            found.append(str(error))

    found: list[str] = []
    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: asked and len(waiting) == 4, "three that wait")
    go.set()
    for thread in threads:
        thread.join()

    assert found == ["squeue has not answered" if fails else "answer"] * 4
    assert len(asked) == 1


def test_ask_shared_time_limit(folder):
    # The other one comes while this one has it.
    assert (
        shared(lambda: f"after {shared(lambda: 'b', limit_seconds=0.01)}") == "after b"
    )


def test_ask_shared_after_an_error(folder):
    with pytest.raises(SlurmSilentError, match="has not answered"):
        shared(fail)
    with pytest.raises(ZeroDivisionError):
        shared(lambda: str(1 / 0))

    assert shared(lambda: "a", limit_seconds=0.01) == "a"
    assert shared(lambda: "b", limit_seconds=0.01) == "a"


@pytest.mark.parametrize("damage", ["text", "another table", "a folder", "no folder"])
def test_ask_shared_damaged_cache(folder, damage):
    shared(lambda: "a")
    [file] = folder.iterdir()
    file.unlink()
    if damage == "text":
        file.write_text("no data base " * 100)
    elif damage == "another table":
        with sqlite3.connect(file) as connection:
            connection.execute("CREATE TABLE texts (other)")
        connection.close()
    elif damage == "a folder":
        file.mkdir()
    else:
        folder.rmdir()
        folder.write_text("a file")

    assert shared(lambda: "b") == "b"
    if damage == "text":  # it is removed, and made again
        assert [shared(lambda: "c"), shared(lambda: "d")] == ["c", "c"]


def test_ask_shared_earlier_boot(folder, monkeypatch):
    shared(lambda: "a")
    monkeypatch.setattr(cache, "boot_id", lambda: "another")

    assert shared(lambda: "b") == "b"


def test_cache_texts_by_key(folder):
    with Cache("kind", 0.0) as one:
        one.write("a\udcff", {"x": ("1", "old"), "y": ("2", json.dumps("\u00e9"))})
        one.write("b", {"x": ("3", "other")})
    with Cache("kind", 0.0) as one:
        one.write("a\udcff", {"x": ("4", "new")}, gone=["y"])
    with Cache("kind", 0.0) as one:
        assert one.read("a\udcff") == {"x": ("4", "new")}
        assert one.read("b") == {"x": ("3", "other")}
