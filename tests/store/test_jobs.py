"""Slurm is asked once for all runs, and what it says is understood."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

import pytest

from nbkit.config import ExperimentConfig
from nbkit.store import jobs
from nbkit.store.job_state import end_words, waiting_words
from nbkit.store.jobs import GONE, Job, find_job, why_unknown
from nbkit.store.record import RunState, write_json
from nbkit.store.run_list import list_runs
from nbkit.store.stored_runs import create_run_folder
from tests.waiting import wait_until

# As Slurm 22.05 printed it.
RECORDED = [
    "12|CANCELLED|1795371288|n[1-2]|None",
    "13|FAILED|1795371326|n[1-2]|NonZeroExitCode",
    "15|PENDING|1795371629||Resources",
    "17|PENDING|N/A||Dependency",
    "14|RUNNING|1795371329|n[1-2]|None",
]
DISABLED = "Slurm accounting storage is disabled"


def test_what_squeue_prints_is_understood(slurm):
    slurm.tell("squeue", *RECORDED)

    found = {number: find_job(str(number)) for number in (12, 13, 14, 15, 17)}

    states = {number: job.state for number, job in found.items()}
    assert states == {
        12: "CANCELLED",
        13: "FAILED",
        14: "RUNNING",
        15: "PENDING",
        17: "PENDING",
    }
    assert found[15].start_estimate == "2026-11-22T18:20:29.000Z"
    assert (found[15].reason, found[15].nodes) == ("Resources", "")
    assert found[17].start_estimate is None
    assert (found[14].start_estimate, found[14].nodes) == (None, "n[1-2]")
    assert [found[number].has_ended for number in (12, 13, 14, 15)] == [1, 1, 0, 0]
    assert [found[number].waits for number in (12, 14, 15)] == [0, 0, 1]


def test_find_job_any_reason(slurm):
    text = "Nodes required for job are DOWN, DRAINED or reserved | or so"
    slurm.tell("squeue", "CLUSTER: here", f"15|PENDING|N/A||{text}", "")

    assert find_job("15").reason == text


def test_find_job_fifty_runs(slurm, clock, tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    for number in range(50):
        paths = create_run_folder(ExperimentConfig())
        job = {"id": str(100 + number), "cluster": None}
        write_json(paths.submission, {"attempt": 0, "supervisor": None, "job": job})
    slurm.tell("squeue", *(f"{100 + n}|PENDING|N/A||Priority" for n in range(50)))

    for tick in (1, 2, 3):
        states = [row.state for _ in range(4) for row in list_runs()]
        assert states == [RunState.QUEUED] * 200
        assert len(slurm.calls("squeue")) == tick
        clock.seconds += jobs.ANSWER_SECONDS


def test_runs_that_have_ended_ask_nothing(slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    paths = create_run_folder(ExperimentConfig())
    job = {"id": "1", "cluster": None}
    write_json(paths.submission, {"attempt": 0, "supervisor": None, "job": job})
    write_json(paths.record, {"attempt": 0, "state": "finished"})
    slurm.tell("squeue")

    assert [row.state for row in list_runs()] == [RunState.FINISHED]
    assert slurm.calls("squeue") == []


def test_find_job_threads(slurm, tmp_path):
    go = tmp_path / "go"
    slurm.tell("squeue", *RECORDED, also=f'until [ -e "{go}" ]; do :; done')
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(find_job("14"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    go.touch()
    for thread in threads:
        thread.join()

    assert [job.state for job in found] == ["RUNNING"] * 8
    assert len(slurm.calls("squeue")) == 1


def test_find_job_controller_hangs(slurm, clock, monkeypatch):
    slurm.tell("squeue", *RECORDED)
    find_job("14")
    monkeypatch.setattr(jobs, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(jobs, "LIMIT_SECONDS", 0.5)
    slurm.tell("squeue", also="exec /bin/sleep 1000")
    clock.seconds += 200

    job = find_job("14")

    assert (job.state, job.age_seconds) == ("RUNNING", 200)
    wait_until(why_unknown, "the end of the question")
    assert why_unknown() == "squeue did not respond within 0.5 s"
    assert "3 min old" in waiting_words(find_job("15"))


def test_find_job_failed_question(slurm, clock):
    slurm.tell("squeue", status=1, words="slurm_load_jobs error: Unable to contact")

    assert find_job("14") is None
    assert why_unknown() == "slurm_load_jobs error: Unable to contact"
    clock.seconds += jobs.ANSWER_SECONDS
    assert find_job("14") is None
    assert len(slurm.calls("squeue")) == 1
    slurm.tell("squeue", *RECORDED)
    clock.seconds += 60

    assert find_job("14").state == "RUNNING"
    assert why_unknown() == ""


def test_find_job_thread_not_started(slurm, monkeypatch):
    slurm.tell("squeue", *RECORDED)

    def refuse(thread: threading.Thread) -> None:
        message = "can't start new thread"
        raise RuntimeError(message)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert find_job("14") is None
        assert "can't start new thread" in why_unknown()

    assert find_job("14").state == "RUNNING"
    assert why_unknown() == ""


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_find_job_in_forked_process(slurm, monkeypatch):
    begun, go = threading.Event(), threading.Event()

    # Not a program: what is forked would keep the pipe open from which it is read.
    def hang(*_: str, limit_seconds: float) -> str:
        begun.set()
        go.wait()
        return "\n".join(RECORDED)

    monkeypatch.setattr(jobs, "ask_slurm", hang)
    monkeypatch.setattr(jobs, "PATIENCE_SECONDS", 0.0)
    assert find_job("14") is None
    begun.wait()
    try:
        if (pid := os.fork()) == 0:
            with suppress(BaseException):
                os._exit(_ask_again())
            os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0, "it never has an answer"
    finally:
        go.set()


def _ask_again() -> int:
    """Return 0 once there is an answer."""
    jobs.ask_slurm = lambda *_, limit_seconds: "\n".join(RECORDED)
    wait_until(lambda: find_job("14"), "an answer")
    return 0


def test_a_machine_without_slurm_says_so(slurm):
    assert find_job("14") is None
    assert why_unknown() == "squeue is not installed on this machine"


def test_find_job_behind_question(slurm, clock):
    slurm.tell("squeue", *RECORDED)
    find_job("14")

    assert find_job("99") is None
    slurm.tell("squeue", *RECORDED, "99|PENDING|N/A||None")
    clock.seconds += jobs.ANSWER_SECONDS

    assert find_job("99").state == "PENDING"


def test_find_job_sacct_once(slurm, clock):
    slurm.tell("squeue", "3|RUNNING|1795371329|n1|None")
    slurm.tell("sacct", "1|CANCELLED by 1000|n[1-2]", "2|RUNNING|n1")
    find_job("3")
    for job_id in ("1", "2"):
        find_job(job_id)
    clock.seconds += jobs.ANSWER_SECONDS

    found = [find_job(job_id) for _ in range(3) for job_id in ("1", "2", "3")]
    clock.seconds += jobs.ANSWER_SECONDS
    found += [find_job(job_id) for job_id in ("1", "2", "3")]

    assert [job.state for job in found] == ["CANCELLED", GONE, "RUNNING"] * 4
    [call] = slurm.calls("sacct")
    assert set(call.rpartition("--jobs=")[2].split(",")) == {"1", "2"}


def test_find_job_without_accounts(slurm, clock):
    slurm.tell("squeue")
    slurm.tell("sacct", status=1, words=DISABLED)

    assert [find_job("1").state, len(slurm.calls("sacct"))] == [GONE, 1]
    find_job("2")
    clock.seconds += jobs.ANSWER_SECONDS
    assert [find_job("2").state, len(slurm.calls("sacct"))] == [GONE, 1]
    assert len(slurm.calls("squeue")) == 2


def test_find_job_whose_end_was_seen(slurm, clock):
    ends = ("1|CANCELLED|N/A||None", "2|OUT_OF_MEMORY|1795371329|n1|None")
    slurm.tell("squeue", *ends)
    slurm.tell("sacct", status=1, words=DISABLED)
    states = []
    for _ in range(3):
        states.append([find_job(job_id).state for job_id in ("1", "2")])
        clock.seconds += jobs.ANSWER_SECONDS
        slurm.tell("squeue")
        find_job("1")
        clock.seconds += jobs.ANSWER_SECONDS

    assert states == [["CANCELLED", "OUT_OF_MEMORY"]] * 3


def test_find_job_accounts_fail_once(slurm, clock):
    slurm.tell("squeue")
    slurm.tell("sacct", status=1, words="Unable to contact the data base")
    assert find_job("1").state == GONE
    slurm.tell("sacct", "2|CANCELLED by 1000|n1")
    find_job("2")
    clock.seconds += jobs.ANSWER_SECONDS

    assert find_job("2").state == "CANCELLED"


def test_find_job_before_accounts(slurm, clock, tmp_path, monkeypatch):
    slurm.tell("squeue", "1|CANCELLED|N/A|n1|None", "2|RUNNING|1795371329|n1|None")
    find_job("1")
    go = tmp_path / "go"
    slurm.tell("squeue", "2|PENDING|N/A||Priority")
    slurm.tell("sacct", "1|TIMEOUT|n1", also=f'until [ -e "{go}" ]; do :; done')
    find_job("1")
    monkeypatch.setattr(jobs, "PATIENCE_SECONDS", 0)
    clock.seconds += jobs.ANSWER_SECONDS
    find_job("2")

    wait_until(lambda: find_job("2").state == "PENDING", "squeue's answer")
    assert find_job("1").state == "CANCELLED", "its last word, until there is a better"
    go.touch()
    wait_until(lambda: find_job("1").state == "TIMEOUT", "the accounts' answer")


def test_find_job_of_another_cluster(slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("SQUEUE_FORMAT", "%j")
    monkeypatch.setenv("SLURM_CLUSTERS", "elsewhere")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    seen = tmp_path / "seen"
    shown = '"${SQUEUE_FORMAT-}${SLURM_CLUSTERS-}$SLURM_TIME_FORMAT $LC_ALL"'
    also = f'printf "%s" {shown} >"{seen}"'
    slurm.tell("squeue", "1|RUNNING|1795371329|n1|None", also=also)

    assert find_job("1", "big").state == "RUNNING"
    assert seen.read_text() == "%s C"
    [call] = slurm.calls("squeue")
    assert "--clusters=big" in call
    assert find_job("1").state == "RUNNING"
    assert "--clusters" not in slurm.calls("squeue")[1]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Resources", "waiting for free nodes (Resources)"),
        ("ReqNodeNotAvail, UnavailableNodes:n1", "drained or reserved (ReqNodeNotAvai"),
        ("None", "Slurm: pending"),
        ("SomethingNew", "Slurm: SomethingNew"),
    ],
)
def test_waiting_words_reason(reason, words):
    assert words in waiting_words(Job("1", "PENDING", reason=reason))


def test_waiting_words_estimate():
    job = Job("1", "PENDING", "Priority", start_estimate="2020-02-03T14:05:00Z")

    assert waiting_words(job).endswith(
        "; starts about 2020-02-03 14:05 UTC (Slurm's estimate)"
    )


def test_end_words():
    job = Job("1", "NODE_FAIL", reason="NodeDown", nodes="n[1-2]")

    assert end_words(job) == "NODE_FAIL on n[1-2] (a node has failed, reason NodeDown)"
    assert end_words(Job("1", "SOMETHING_NEW")) == "SOMETHING_NEW"


def test_find_job_old_jobs(slurm):
    slurm.tell("squeue", RECORDED[-1])
    slurm.tell("sacct", "1|COMPLETED|n1", "2|CANCELLED by 0|")
    assert find_job("14", submitted_at=0).state == "RUNNING"

    assert find_job("1", submitted_at=0).state == "COMPLETED"
    assert find_job("2", submitted_at=0).state == "CANCELLED"
    assert find_job("99", submitted_at=time.time()) is None, "it may have come since"


def test_find_job_old_jobs_without_accounts(slurm):
    slurm.tell("squeue", RECORDED[-1])
    slurm.tell("sacct", status=1, words=DISABLED)
    assert find_job("1", submitted_at=0).state == GONE

    assert {find_job(str(n), submitted_at=0).state for n in range(2, 9)} == {GONE}
    assert len(slurm.calls("squeue")) == 1


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"state": "running", "supervisor": None}, RunState.LOST),
        ({"state": "failed", "cause": {"kind": "node"}}, RunState.FAILED),
    ],
)
def test_list_runs_many_old_jobs(slurm, tmp_path, monkeypatch, record, expected):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    for number in range(20):
        paths = create_run_folder(ExperimentConfig())
        job = {"id": str(100 + number), "cluster": None}
        submitted = {"attempt": 0, "supervisor": None, "job": job}
        time = {"time": "2026-01-01T00:00:00.000Z"}
        write_json(paths.submission, submitted | time)
        write_json(paths.record, {"attempt": 0, "launch": {"job": job}, **record})
    slurm.tell("squeue", RECORDED[-1])
    slurm.tell("sacct", *(f"{100 + number}|NODE_FAIL|n1" for number in range(20)))

    states = [row.state for _ in range(2) for row in list_runs()]

    assert states == [expected] * 40
    assert len(slurm.calls("squeue")) == 1
    assert len(slurm.calls("sacct")) == 1
