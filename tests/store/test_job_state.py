"""Where a run stands that is a job of Slurm, as files and squeue tell it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from nbkit.config import ExperimentConfig
from nbkit.store import jobs
from nbkit.store.liveness import STALE_SECONDS
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState, write_json
from nbkit.store.run_list import list_runs
from nbkit.store.stored_runs import StoredRun, create_run_folder
from tests.waiting import wait_until

SUBMITTED = "2026-11-22T14:00:00.000Z"
ELSEWHERE = {"pid": 7, "start_ticks": 7, "host": "n1", "boot_id": "b"}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a run that was handed to Slurm as job 7, and of which nothing else is."""
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    run = StoredRun(create_run_folder(ExperimentConfig()).root)
    submit(run)
    return run


def submit(run, attempt=0, job_id="7"):
    values = {
        "attempt": attempt,
        "time": SUBMITTED,
        "name": "far away",
        "supervisor": None,
        "job": {"id": job_id, "cluster": None},
    }
    write_json(run.paths.submission, values)


def write_record(run, state, attempt=0, supervisor=ELSEWHERE, **values):
    record = {"attempt": attempt, "state": state, "supervisor": supervisor}
    write_json(run.paths.record, {**record, "name": "far away", **values})


def ask_to_stop(run):
    write_json(run.paths.stop, {"attempt": 0, "by": "ann", "grace_seconds": 5})


STATES = [
    # record's state, whether a stop was asked for, Slurm's line; what it stands for
    (None, False, "PENDING", "Resources", "queued"),
    (None, True, "PENDING", "Resources", "queued"),
    (None, False, "CONFIGURING", "None", "queued"),
    (None, False, "RUNNING", "None", "starting"),
    (None, False, "COMPLETING", "None", "starting"),
    (None, True, "CANCELLED", "None", "stopped"),
    (None, False, "CANCELLED", "None", "stopped"),
    (None, False, "FAILED", "NonZeroExitCode", "lost"),
    (None, True, "FAILED", "NonZeroExitCode", "stopped"),
    ("running", True, "FAILED", "NonZeroExitCode", "lost"),
    (None, False, "COMPLETED", "None", "lost"),
    (None, False, "NODE_FAIL", "None", "lost"),
    (None, False, None, None, "lost"),
    (None, True, None, None, "stopped"),
    ("running", False, "RUNNING", "None", "running"),
    ("stopping", True, "COMPLETING", "None", "stopping"),
    ("running", False, "SUSPENDED", "None", "running"),
    ("running", False, "PENDING", "BeginTime", "queued"),
    ("queued", False, "PENDING", "BeginTime", "queued"),
    ("queued", False, "RUNNING", "None", "starting"),
    ("queued", False, "COMPLETING", "None", "queued"),
    ("running", False, "REQUEUED", "None", "queued"),
    ("running", False, "CANCELLED", "None", "stopped"),
    ("stopping", True, "CANCELLED", "None", "stopped"),
    ("running", False, "NODE_FAIL", "None", "lost"),
    ("running", False, "TIMEOUT", "TimeLimit", "lost"),
    ("running", False, "OUT_OF_MEMORY", "None", "lost"),
    ("running", False, "PREEMPTED", "None", "lost"),
    ("running", False, None, None, "lost"),
    ("stopping", True, None, None, "stopped"),
    ("finished", False, "COMPLETED", "None", "finished"),
    ("failed", False, "FAILED", "NonZeroExitCode", "failed"),
    ("stopped", True, None, None, "stopped"),
]


@pytest.mark.parametrize(("written", "stop", "word", "reason", "state"), STATES)
def test_standing(run, slurm, written, stop, word, reason, state):
    slurm.tell("squeue", *([] if word is None else [f"7|{word}|N/A|n[1-2]|{reason}"]))
    if written is not None:
        write_record(run, written)
    if stop:
        ask_to_stop(run)

    assert run.state == state
    assert [row.state for row in list_runs()] == [state]
    assert (run.queue is not None) == (state == "queued")
    if state in ("lost", "stopped") and written not in ("stopped", "failed"):
        assert run.cause["kind"] == state
        assert run.cause["log"] == str(run.paths.logs / "slurm-7.log")
    else:
        assert run.cause is None


@pytest.mark.parametrize(
    ("written", "stop", "line", "words"),
    [
        (None, True, "7|CANCELLED|N/A||None", "by ann, before its ranks were started"),
        ("running", False, "7|CANCELLED|N/A|n1|None", "wrote no final record"),
        (None, False, "7|FAILED|N/A|n1|None", "FAILED on n1;"),
        (None, False, "7|FAILED|N/A|n1|None", "slurm-7.log: check that the store (N"),
        (None, False, "7|DEADLINE|N/A||None", "supervisor did not start, and /"),
        (None, False, "", "job 7 ended; its exit state is no longer"),
        ("running", False, "7|NODE_FAIL|N/A|n[1-2]|None", "NODE_FAIL on n[1-2] (a no"),
        ("running", False, "7|PREEMPTED|N/A|n1|None", "run has no checkpoint: launch"),
    ],
)
def test_standing_cause(run, slurm, written, stop, line, words):
    slurm.tell("squeue", line)
    if written is not None:
        write_record(run, written)
    if stop:
        ask_to_stop(run)

    assert words in run.cause["message"]


def test_standing_cause_job_log(run, slurm):
    slurm.tell("squeue", "7|FAILED|N/A|n1|None")
    log = run.paths.job_log("7")
    log.parent.mkdir(exist_ok=True)
    log.touch()
    begun = "the supervisor did not start"

    assert f"{begun}; its output is in {log}" in run.cause["message"]
    said = "nbkit: exit status 127: module load cuda"
    log.write_text(f"bash: module: not found\n{said}\nslurmstepd: done\n")
    assert f"{begun}: {said}; its output" in run.cause["message"]


def test_standing_ends_between_looks(run, slurm, tmp_path):
    write_record(run, "finished")
    final = tmp_path / "final.json"
    run.paths.record.rename(final)
    write_record(run, "running")
    # squeue tells of the end when the record has it already.
    also = f'/bin/cp "{final}" "{run.paths.record}"'
    slurm.tell("squeue", "7|COMPLETED|N/A|n1|None", also=also)

    assert run.state is RunState.FINISHED


@pytest.mark.parametrize(
    ("written", "cause", "word", "state"),
    [
        ("stopped", {"kind": "stopped", "by": "slurm"}, "PENDING", "queued"),
        ("stopped", {"kind": "stopped", "by": "slurm"}, "COMPLETING", "stopping"),
        ("stopped", {"kind": "stopped", "by": "slurm"}, "CANCELLED", "stopped"),
        ("stopped", {"kind": "stopped", "by": "ann"}, "PENDING", "stopped"),
        ("stopped", {"kind": "stopped", "by": "time limit"}, "PENDING", "queued"),
        ("failed", {"kind": "node"}, "PENDING", "queued"),
        ("failed", {"kind": "launch"}, "PENDING", "queued"),
        ("failed", {"kind": "node"}, "FAILED", "failed"),
        ("failed", {"kind": "exit"}, "PENDING", "failed"),
    ],
)
def test_standing_may_go_on(run, slurm, written, cause, word, state):
    launch = {"job": {"id": "7", "cluster": None, "nodes": ["n1"], "restarts": 0}}
    write_record(run, written, cause=cause, launch=launch)
    slurm.tell("squeue", f"7|{word}|N/A||None")

    assert run.state == state
    assert [row.state for row in list_runs()] == [state]
    assert (run.cause == cause) == (state in ("stopped", "failed"))


def test_standing_resumed_run(run, slurm):
    write_record(run, "failed", attempt=0, cause={"kind": "exit", "message": "old"})
    submit(run, attempt=1, job_id="8")
    slurm.tell("squeue", "7|FAILED|N/A|n1|None", "8|PENDING|N/A||Priority")

    assert run.state is RunState.QUEUED
    assert run.cause is None


def test_standing_newer_record(run, slurm):
    slurm.tell("squeue", "7|PENDING|N/A||Priority")
    assert run.state is RunState.QUEUED
    write_record(run, "running")
    os.utime(run.paths.record, (4e9, 4e9))

    assert run.state is RunState.RUNNING
    os.utime(run.paths.record, (1e9, 1e9))
    assert run.state is RunState.QUEUED


def test_standing_requeued_run(run, slurm):
    slurm.tell("squeue", "7|RUNNING|N/A|n1|None")
    write_record(run, "queued")
    os.utime(run.paths.record, (4e9, 4e9))
    assert run.state is RunState.QUEUED, "that answer is from before the requeue"

    os.utime(run.paths.record, (1e9, 1e9))
    assert run.state is RunState.STARTING


def test_queue_estimate(run, slurm):
    slurm.tell("squeue", "7|PENDING|1580738700||Resources")

    assert run.queue == {
        "position": None,
        "length": None,
        "reason": "Slurm: waiting for free nodes (Resources); starts about "
        "2020-02-03 14:05 UTC (Slurm's estimate)",
        "since": SUBMITTED,
    }


def test_queue_requeued_run(run, slurm):
    since = "2026-11-22T16:00:00.000Z"
    queue = {"position": None, "length": None, "reason": "time limit", "since": since}
    write_record(run, "queued", queue=queue)
    slurm.tell("squeue", "7|PENDING|N/A||BeginTime")

    assert run.state is RunState.QUEUED
    found = run.queue
    assert found["reason"].startswith("time limit; Slurm: begin time in the")
    assert found["since"] == since


def test_queue_since(run, slurm):
    slurm.tell("squeue", "7|PENDING|N/A||BeginTime")
    write_record(run, "running")
    os.utime(run.paths.record, (1580738700.25, 1580738700.25))

    assert run.queue["since"] == "2020-02-03T14:05:00.250Z"
    submit(run, attempt=1)
    assert run.queue["since"] == SUBMITTED, "that record is of the attempt before"


@pytest.mark.parametrize(("written", "state"), [(None, "queued"), ("running",) * 2])
def test_standing_without_slurm(run, slurm, written, state):
    if written is not None:
        write_record(run, written)

    assert run.state == state
    if written is None:
        why = "Slurm: job state unknown (squeue is not installed on this machine)"
        assert run.queue["reason"] == why


@pytest.mark.parametrize("state", ["starting", "running", "stopping"])
def test_standing_unknown(run, slurm, state):
    write_record(run, state)
    assert run.state == state
    for path in (run.paths.record, run.paths.submission):
        os.utime(path, (1e9, 1e9))

    assert run.state is RunState.UNKNOWN
    assert [row.state for row in list_runs()] == [RunState.UNKNOWN]
    assert run.cause["kind"] == "unknown"
    why = (
        "unknown state of Slurm job 7 (squeue is not installed on this machine); no he"
    )
    assert run.cause["message"].startswith(why)
    assert "process 7 of n1 is not visible" in run.cause["message"]


def test_standing_silent_run(run, slurm, monkeypatch):
    slurm.tell("squeue", "7|RUNNING|N/A|n1|None")
    write_record(run, "running")
    for path in (run.paths.record, run.paths.submission):
        os.utime(path, (1e9, 1e9))
    assert run.state is RunState.RUNNING

    old = jobs.Job("7", "RUNNING", age_seconds=STALE_SECONDS + 1)
    monkeypatch.setattr("nbkit.store.job_state.find_job", lambda *_: old)
    assert run.state is RunState.UNKNOWN, "it said so long ago"
    waits = jobs.Job("7", "PENDING", age_seconds=1e6)
    monkeypatch.setattr("nbkit.store.job_state.find_job", lambda *_: waits)
    assert run.state is RunState.QUEUED, "what waits gives no signs"
    os.utime(run.paths.record, (time.time() - 2 * STALE_SECONDS,) * 2)
    assert run.state is RunState.UNKNOWN, "it has begun since"


def test_standing_while_slurm_is_asked(run, slurm, monkeypatch, tmp_path):
    monkeypatch.setattr(jobs, "PATIENCE_SECONDS", 0.05)
    write_record(run, "running")
    for path in (run.paths.record, run.paths.submission):
        os.utime(path, (1e9, 1e9))
    go = tmp_path / "go"
    held = f'until [ -e "{go}" ]; do /bin/sleep 0.05; done'
    slurm.tell("squeue", also=held, status=1, words="no contact")

    assert run.state is RunState.RUNNING
    go.touch()
    wait_until(jobs.why_unknown, "the end of the question")
    assert run.state is RunState.UNKNOWN


def test_standing_supervisor_here(run, slurm):
    slurm.tell("squeue")
    write_record(run, "running", supervisor=ProcessIdentity.of().to_dict())

    assert run.state is RunState.RUNNING
    assert slurm.calls("squeue") == []


@pytest.mark.parametrize("whose", ["another user", "another machine"])
def test_standing_job_of_another(run, slurm, whose, monkeypatch):
    slurm.tell("squeue")
    write_record(run, "running")
    if whose == "another user":
        monkeypatch.setattr(os, "geteuid", lambda: -1)
    else:
        run.paths.imported.write_text("{}")

    assert run.state is RunState.RUNNING
    assert slurm.calls("squeue") == []


def test_queue_job_of_another_user(run, slurm, monkeypatch):
    slurm.tell("squeue")
    assert run.queue is None, "its owner knows that it has ended"
    monkeypatch.setattr(os, "geteuid", lambda: -1)

    assert run.queue["reason"] == "Slurm: job state unknown (another user's job)"


def test_local_run_imports(run):
    me = ProcessIdentity.of().to_dict()
    local = {"attempt": 0, "supervisor": me, "job": None}
    write_json(run.paths.submission, local)
    write_record(run, "running", supervisor=me)
    program = (
        "import sys; from pathlib import Path\n"
        "from nbkit.store.stored_runs import StoredRun\n"
        f"run = StoredRun(Path({str(run.paths.root)!r}))\n"
        "from nbkit.store.run_list import list_runs\n"
        "print(run.state, run.queue, list_runs()[0].state, run.cause)\n"
        "print('nbkit.store.job_state' in sys.modules, 'subprocess' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines() == ["running None running None", "False False"]
