"""How the supervisor of a job ends a run, or has Slurm start it again."""

from __future__ import annotations

import os
import signal

import pytest

from nbkit.config import ExperimentConfig
from nbkit.errors import LaunchError
from nbkit.launch.slurm.job import (
    JobDevices,
    JobRequests,
    SlurmJob,
    requeue_if_due,
    requeue_reason,
)
from nbkit.launch.supervision.journal import Journal
from nbkit.launch.supervision.supervisor import await_submission
from nbkit.store.liveness import is_stale
from nbkit.store.paths import RunPaths
from nbkit.store.record import RunState, write_json
from nbkit.store.stored_runs import StoredRun, create_run_folder
from tests.clocks import PlayedTime
from tests.slurm_programs import SlurmPrograms

JOB = SlurmJob("7", 0, ("n1",))
SUBMISSION = {
    "on_owner_exit": "keep",
    "stop_grace_seconds": 30.0,
    "owner": {"pid": 7, "start_ticks": 7, "host": "n9", "boot_id": "b"},
}
CONFIG = ("KillOnBadExit           = 0", "KillWait                = 12 sec")


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    programs = SlurmPrograms(tmp_path, monkeypatch)
    programs.tell("squeue", "N/A                 ")
    programs.tell("scontrol", *CONFIG)
    return programs


@pytest.fixture
def paths(tmp_path):
    root = tmp_path / "20260101-120000-tiny-abc"
    root.mkdir()
    return RunPaths(root)


@pytest.fixture(autouse=True)
def signals():
    """Put back what a supervisor does to the process that it is."""
    numbers = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def stopped(by, *, forced=False):
    cause = {"kind": "stopped", "message": "", "by": by, "forced": forced}
    return RunState.STOPPED, cause


def save_checkpoint(paths):
    (paths.checkpoints / "step_00000010").mkdir(parents=True)
    (paths.checkpoints / "step_00000010" / "complete.json").touch()


@pytest.mark.parametrize(
    ("forced", "saved", "words"),
    [
        (False, False, "requeued, starts from the beginning"),
        (False, True, "requeued, continues from its checkpoint"),
        (True, True, "requeued, continues from its checkpoint"),
        (True, False, None),
    ],
)
def test_why_again_at_time_limit(paths, forced, saved, words):
    if saved:
        save_checkpoint(paths)

    why = requeue_reason(stopped("time limit", forced=forced), paths)

    assert why is None if words is None else why is not None and words in why


def test_why_again_lost_node(paths):
    cause = {"kind": "node", "message": "node n2 is gone"}

    why = requeue_reason((RunState.FAILED, cause), paths)

    assert why == "node n2 is gone; requeued, starts from the beginning"


@pytest.mark.parametrize(("count", "is_queued"), [("0", False), ("1", True)])
def test_requeue_cancelled_job(slurm, count, is_queued):
    slurm.tell("squeue", count)

    assert JOB.requeue() is is_queued
    assert slurm.calls("scontrol") == ["requeue Incomplete 7"]


def test_requeue_ignores_sigterm(slurm):
    slurm.tell("squeue", "1")
    slurm.tell("scontrol", also="kill -TERM $$")

    assert JOB.requeue()
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_refused_requeue_is_none(slurm):
    slurm.tell("squeue", "1")
    slurm.tell("scontrol", status=1, words="Requested operation is disabled")

    assert not JOB.requeue()


@pytest.mark.parametrize(
    ("word", "makes_way"), [("1795371329", True), ("N/A", False), (None, False)]
)
def test_makes_way(slurm, word, makes_way):
    if word is None:
        slurm.tell("squeue", status=1, words="Unable to contact slurm controller")
    else:
        slurm.tell("squeue", f"{word}      ")

    assert JOB.is_preempted() is makes_way


@pytest.mark.parametrize(
    ("config", "preempted", "grace_seconds"),
    [
        (CONFIG, "N/A", 4.0),
        (("KillWait = 5 sec",), "N/A", 1.0),
        ((), "N/A", 22.0),
        (CONFIG, "1795371329", 30.0),
    ],
)
def test_job_requests_grace(paths, slurm, config, preempted, grace_seconds):
    slurm.tell("scontrol", *config)
    slurm.tell("squeue", preempted)
    write_json(paths.stop, {"by": "ann", "grace_seconds": 60})
    requests = JobRequests(paths, SUBMISSION, JOB)
    os.kill(os.getpid(), signal.SIGUSR1)
    asked, limit = requests.look()
    assert (asked["by"], asked["grace_seconds"]) == ("ann", 60)
    assert limit == {"by": "time limit", "grace_seconds": 30.0}

    os.kill(os.getpid(), signal.SIGTERM)

    for _ in range(2):
        asked, limit = requests.look()
        assert limit == {"by": "time limit", "grace_seconds": grace_seconds}
        expected = 60 if preempted != "N/A" else grace_seconds
        assert asked["grace_seconds"] == expected
    assert len(slurm.calls("squeue")) == 1


def test_job_requests_wake_up_removed_run(paths, slurm):
    requests = JobRequests(paths, SUBMISSION, JOB)
    paths.root.rmdir()

    os.kill(os.getpid(), signal.SIGUSR2)

    assert requests.look() == []


def test_await_submission_late(paths, monkeypatch):
    clock = PlayedTime(monkeypatch, "nbkit.launch.supervision.supervisor")
    due, naps = clock.seconds + 100, []

    def sleep(seconds):
        naps.append(seconds)
        clock.seconds += seconds
        if clock.seconds > due:
            write_json(paths.submission, {"job": {"id": "7"}})

    clock.sleep = sleep

    found = await_submission(paths, bool)

    assert found == {"job": {"id": "7"}}
    assert len(naps) < 500, "a file server is not asked all the time"


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    return StoredRun(create_run_folder(ExperimentConfig()).root)


@pytest.fixture
def journal(run):
    names = "name time engine owner on_owner_exit device_type cpus_per_rank argv cwd"
    unknown = dict.fromkeys(names.split())
    request = {
        "request": {"kind": "cpu"},
        "parameter_sources": {},
        "tags": {},
        "attempt": 0,
    }
    journal = Journal(run.paths, {**unknown, **request})
    journal.record["launch"]["job"] = {"timeouts": 1}
    yield journal
    journal.close()


def test_waits_again_not_stopped(run, journal, slurm):
    write_json(run.paths.stop, {"by": "ann", "grace_seconds": 5})

    assert not requeue_if_due(run, journal, JOB, 0, stopped("time limit"))
    assert slurm.calls("scontrol") == slurm.calls("squeue") == []


def test_waits_again_not_too_often(run, journal, slurm):
    assert not requeue_if_due(run, journal, JOB, 3, stopped("time limit"))
    assert slurm.calls("scontrol") == []


def test_ranks_start_gives_signs(run, journal, slurm):
    slurm.tell("srun")
    requests = JobRequests(run.paths, SUBMISSION, JOB)
    known = {"software": {}}
    devices = JobDevices(JOB, known, requests, 0, journal.write_heartbeat)
    journal.write_record()
    os.utime(run.paths.record, (1, 1))
    assert is_stale(run.paths)

    ranks = devices.ranks(run, 0)
    with pytest.raises(LaunchError, match="Slurm ended the job step of the ranks"):
        ranks.start()
    ranks.close()

    assert not is_stale(run.paths)
