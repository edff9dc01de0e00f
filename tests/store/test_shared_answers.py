"""A user's processes ask Slurm once for all of them, and believe nothing too old."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace

import pytest

from nbkit.store import jobs
from nbkit.store.jobs import find_job
from nbkit.store.shared_answers import ask_shared
from tests.slurm_programs import SlurmPrograms

NOW = 1_000_000.0


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    return SlurmPrograms(tmp_path, monkeypatch)


@pytest.fixture
def clock(monkeypatch):
    now = [NOW]
    clock = SimpleNamespace(monotonic=lambda: now[0], time=lambda: now[0])
    monkeypatch.setattr(jobs, "time", clock)
    return now


@pytest.fixture
def another_process(monkeypatch):
    """Return what forgets all that this process has heard."""
    return lambda: monkeypatch.setattr(jobs, "_clusters", {})


def test_processes_of_a_user_share_an_answer_for_as_long_as_it_is_good(
    slurm, clock, another_process, tmp_path
):
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


def test_a_job_that_is_newer_than_anothers_question_is_not_gone(
    slurm, clock, another_process
):
    slurm.tell("squeue", "7|PENDING|N/A||Priority")
    slurm.tell("sacct", status=1, words="Slurm accounting storage is disabled")
    find_job("7")
    clock[0] += 1
    another_process()

    assert find_job("8", submitted_at=clock[0]) is None
    clock[0] += 5
    slurm.tell("squeue", "8|RUNNING|1795371329|n1|None")
    assert find_job("8", submitted_at=clock[0] - 5).state == "RUNNING"


def test_an_old_job_is_missing_in_anothers_answer_at_once(
    slurm, clock, another_process
):
    slurm.tell("squeue", "7|PENDING|N/A||Priority")
    slurm.tell("sacct", status=1, words="Slurm accounting storage is disabled")
    find_job("7")
    another_process()

    find_job("3", submitted_at=NOW - 3600)

    assert find_job("3", submitted_at=NOW - 3600).state == jobs.GONE
    assert len(slurm.calls("squeue")) == 1


def test_those_that_ask_at_once_wait_for_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked, go = [], threading.Event()

    def ask() -> str:
        asked.append(1)
        go.wait(60)
        return "answer"

    def look() -> None:
        found.append(ask_shared("x", ask, max_age_seconds=5, limit_seconds=60).text)

    found: list[str] = []
    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    go.set()
    for thread in threads:
        thread.join()

    assert found == ["answer"] * 4
    assert len(asked) == 1


def test_a_failure_is_shared_with_nobody_and_who_was_stopped_holds_nobody(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fail() -> str:
        message = "no answer"
        raise OSError(message)

    def stopped() -> str:
        # Another one comes while this one has the lock.
        found = ask_shared("x", lambda: "b", max_age_seconds=5, limit_seconds=0.01)
        return f"after {found.text}"

    with pytest.raises(OSError, match="no answer"):
        ask_shared("x", fail, max_age_seconds=5, limit_seconds=1)
    text = ask_shared("x", stopped, max_age_seconds=5, limit_seconds=1).text

    assert text == "after b"


@pytest.mark.parametrize("content", ["[", "{}", '{"text": "a", "asked_at": "x"}', None])
def test_a_cache_that_is_damaged_or_cannot_be_written_is_none(
    tmp_path, monkeypatch, content
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if content is None:
        (tmp_path / "cache").write_text("a file")
    else:
        ask_shared("x", lambda: "a", max_age_seconds=5, limit_seconds=1)
        [file] = (tmp_path / "cache" / "nbkit").glob("*.json")
        file.write_text(content)

    found = ask_shared("x", lambda: "b", max_age_seconds=5, limit_seconds=1)

    assert found.text == "b"


def test_a_pipe_in_the_place_of_an_answer_holds_nobody(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ask_shared("x", lambda: "a", max_age_seconds=5, limit_seconds=1)
    [file] = (tmp_path / "nbkit").glob("*.json")
    file.unlink()
    os.mkfifo(file)

    found = ask_shared("x", lambda: "b", max_age_seconds=5, limit_seconds=1)

    assert found.text == "b"
