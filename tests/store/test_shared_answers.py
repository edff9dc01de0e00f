"""A user's processes ask Slurm once for all of them, and believe nothing too old."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading
import time
from types import SimpleNamespace

import pytest

from nbkit.store import jobs, shared_answers
from nbkit.store.jobs import find_job
from nbkit.store.shared_answers import ask_shared
from nbkit.store.slurm import SlurmSilentError
from tests.slurm_programs import SlurmPrograms
from tests.waiting import wait_until

NOW = 1_000_000.0


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    return SlurmPrograms(tmp_path, monkeypatch)


@pytest.fixture
def clock(monkeypatch):
    now = [NOW]
    clock = SimpleNamespace(
        monotonic=lambda: now[0], time=lambda: now[0], sleep=time.sleep
    )
    for module in (jobs, shared_answers):
        monkeypatch.setattr(module, "time", clock)
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


def test_a_job_that_squeue_has_named_is_never_unknown_again(
    slurm, clock, another_process, monkeypatch
):
    slurm.tell("squeue", "7|RUNNING|1795371329|n1|None")
    find_job("7")
    mine = jobs._clusters
    clock[0] += 5
    slurm.tell("squeue")
    slurm.tell("sacct", status=1, words="Slurm accounting storage is disabled")
    another_process()
    find_job("8")
    clock[0] += 1
    monkeypatch.setattr(jobs, "_clusters", mine)

    assert find_job("7") is not None
    assert wait_until(lambda: find_job("7").state == jobs.GONE, "its end")
    assert len(slurm.calls("squeue")) == 2


def shared(ask, *, limit_seconds: float = 60.0) -> str:
    return ask_shared(
        "x",
        ask,
        max_age_seconds=5,
        limit_seconds=limit_seconds,
        error=SlurmSilentError,
    ).text


@pytest.fixture
def waiting(monkeypatch):
    """Return how often a lock was held by others."""
    real, refused = fcntl.flock, []

    def flock(descriptor: int, how: int) -> None:
        try:
            real(descriptor, how)
        except BlockingIOError:
            refused.append(descriptor)
            raise

    monkeypatch.setattr(shared_answers.fcntl, "flock", flock)
    return refused


@pytest.mark.parametrize("fails", [False, True])
def test_those_that_ask_at_once_wait_for_one(tmp_path, monkeypatch, waiting, fails):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked, go = [], threading.Event()

    def ask() -> str:
        asked.append(1)
        assert go.wait(60)
        return fail() if fails else "answer"

    def fail() -> str:
        message = "squeue has not answered"
        raise SlurmSilentError(message)

    def look() -> None:
        try:
            found.append(shared(ask))
        except SlurmSilentError as error:
            found.append(str(error))

    found: list[str] = []
    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: asked and len(set(waiting)) == 3, "three that wait")
    go.set()
    for thread in threads:
        thread.join()

    assert found == ["squeue has not answered" if fails else "answer"] * 4
    assert len(asked) == 1


def test_a_failure_is_not_told_to_those_that_come_after_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def fail() -> str:
        message = "no answer"
        raise SlurmSilentError(message)

    with pytest.raises(SlurmSilentError, match="no answer"):
        shared(fail)
    assert shared(lambda: "a") == "a"


def test_a_process_that_was_stopped_with_the_lock_holds_nobody(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    # The other one comes while this one has the lock.
    assert (
        shared(lambda: f"after {shared(lambda: 'b', limit_seconds=0.01)}") == "after b"
    )


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_process_that_is_forked_while_another_asks_does_not_keep_the_lock(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    read, write = os.pipe()
    forked = []

    def ask() -> str:
        if (pid := os.fork()) == 0:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
        forked.append(pid)
        return "a"

    try:
        shared(ask)
        [lock] = (tmp_path / "nbkit").glob("*.lock")
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(write)
        for pid in forked:
            os.waitpid(pid, 0)
        os.close(read)


def test_a_file_system_without_locks_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tries = []

    def flock(descriptor: int, how: int) -> None:
        tries.append(how)
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(shared_answers.fcntl, "flock", flock)

    assert shared(lambda: "a") == "a"
    assert tries.count(fcntl.LOCK_EX | fcntl.LOCK_NB) == 1


@pytest.mark.parametrize(
    "content",
    ["[", "{}", '{"text": "a", "asked_at": "x"}', None, "future", "boot", "pipe"],
)
def test_a_cache_that_is_damaged_or_cannot_be_written_is_none(
    tmp_path, monkeypatch, content
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if content is None:
        (tmp_path / "cache").write_text("a file")
    else:
        shared(lambda: "a")
        [file] = (tmp_path / "cache" / "nbkit").glob("*.json")
        known = json.loads(file.read_text())
        if content == "pipe":
            file.unlink()
            os.mkfifo(file)
        elif content == "future":
            file.write_text(json.dumps({**known, "asked_at": known["asked_at"] + 1e6}))
        elif content == "boot":
            file.write_text(json.dumps({**known, "boot_id": "another"}))
        else:
            file.write_text(content)

    assert shared(lambda: "b") == "b"
