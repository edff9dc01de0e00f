"""`python -m nbkit.launch.slurm.job RUN_DIR`: supervisor of a run, within its job.

Slurm starts it on the first node of the job, and again after a requeue. It does what
the supervisor of one machine does, with a torchrun on every node (see
`nbkit.launch.slurm.ranks`).
"""

from __future__ import annotations

import math
import os
import re
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.launch.code.command import torchrun_line
from nbkit.launch.rendezvous import free_port
from nbkit.launch.slurm.batch_script import srun_argv
from nbkit.launch.slurm.ranks import SlurmRanks
from nbkit.launch.supervision.attempts import run_attempts, write_final_record
from nbkit.launch.supervision.journal import Journal
from nbkit.launch.supervision.requests import StopRequests
from nbkit.launch.supervision.supervisor import (
    become_subreaper,
    end_before_ranks,
    supervise,
)
from nbkit.reading import retry_io
from nbkit.store.network import refresh_nfs_cache
from nbkit.store.paths import RunPaths
from nbkit.store.record import RunState, read_json, utc_now
from nbkit.store.slurm import SlurmSilentError, ask_slurm
from nbkit.store.stored_runs import StoredRun

BY_SLURM = "slurm"
BY_TIME_LIMIT = "time limit"

_ANSWER_SECONDS = 30.0
_SOON_SECONDS = 5.0
"""For an answer while Slurm may end this process."""
_KILL_WAIT_SECONDS = 30.0
"""Slurm's own default."""
_LAST_WORD_SECONDS = 8.0
"""What ending ranks by force and writing how the run ended may take."""


@dataclass(frozen=True)
class SlurmJob:
    """The job that this process is the first of."""

    id: str
    restarts: int
    """How often Slurm has started it again."""
    nodes: tuple[str, ...]
    """What Slurm calls its nodes, this one first."""

    @classmethod
    def of_this_process(cls) -> SlurmJob:
        """Return the job, as Slurm's variables tell."""
        what = ("show", "hostnames", os.environ["SLURM_JOB_NODELIST"])
        listed = ask_slurm("scontrol", *what, limit_seconds=_ANSWER_SECONDS)
        restarts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        return cls(os.environ["SLURM_JOB_ID"], restarts, tuple(listed.split()))

    def is_preempted(self) -> bool:
        """Return whether Slurm gives the job some time to end for another one.

        By itself it takes a job that ends in that time for one that is done. False if
        Slurm does not answer.
        """
        try:
            return self._squeue_field("PreemptTime")[:1].isdigit()
        except SlurmSilentError:
            return False

    def requeue(self) -> bool:
        """Put the job into the queue again, unless a user ended it; return whether."""
        # Slurm answers with SIGTERM, which must not end the question.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        again = ("requeue", "Incomplete", self.id)
        try:
            ask_slurm("scontrol", *again, limit_seconds=_ANSWER_SECONDS)
        except SlurmSilentError:
            return False
        try:
            # scontrol also ends well where it has done nothing.
            return int(self._squeue_field("RestartCnt")) > self.restarts
        except (SlurmSilentError, ValueError):
            return True

    def _squeue_field(self, field: str) -> str:
        which = ("--noheader", "--states=all", f"--jobs={self.id}")
        column = f"--Format={field}"
        return ask_slurm("squeue", *which, column, limit_seconds=_SOON_SECONDS).strip()


def _kill_wait_seconds() -> float:
    """Return how long a job lives after Slurm's SIGTERM."""
    try:
        settings = ask_slurm("scontrol", "show", "config", limit_seconds=_SOON_SECONDS)
    except SlurmSilentError:
        return _KILL_WAIT_SECONDS
    match = re.search(r"^KillWait\s*=\s*(\d+) sec", settings, re.MULTILINE)
    return float(match[1]) if match else _KILL_WAIT_SECONDS


class JobRequests(StopRequests):
    """As `StopRequests`; Slurm asks by signals, too."""

    def __init__(
        self, paths: RunPaths, submission: dict[str, Any], job: SlurmJob
    ) -> None:
        self._job = job
        self._is_terminated = False
        self._most_seconds: float | None = None
        """For ranks to end by themselves, once Slurm has said how long that is."""
        super().__init__(paths, submission)

        # As asked of sbatch: some time before the limit.
        def note_time_limit(*_: object) -> None:
            self._terminated_by = self._terminated_by or BY_TIME_LIMIT

        signal.signal(signal.SIGUSR1, note_time_limit)
        # A request to stop was written.
        signal.signal(signal.SIGUSR2, lambda *_: refresh_nfs_cache(paths.root))
        self._kill_wait_seconds = _kill_wait_seconds()

    def look(self) -> list[dict[str, Any]]:
        """Return the requests that stand now, with no more grace than Slurm gives."""
        requests = super().look()
        if not self._is_terminated:
            return requests
        if self._most_seconds is None:
            seconds = max(1.0, self._kill_wait_seconds - _LAST_WORD_SECONDS)
            self._most_seconds = math.inf if self._job.is_preempted() else seconds
        most = self._most_seconds
        return [
            {**request, "grace_seconds": min(request["grace_seconds"], most)}
            for request in requests
        ]

    def note_sigterm(self) -> None:
        """Take it that Slurm ends the job."""
        # scancel, a preemption or a requeue: Slurm does not say which.
        self._terminated_by = self._terminated_by or BY_SLURM
        self._is_terminated = True


class JobDevices:
    """The nodes of a job, held over all attempts."""

    is_here = True
    """The supervisor is on the job's first node."""

    def __init__(
        self,
        job: SlurmJob,
        submission: dict[str, Any],
        requests: JobRequests,
        timeouts: int,
        write_heartbeat: Callable[[], None],
    ) -> None:
        self._job = job
        self._submission = submission
        self._requests = requests
        self._timeouts = timeouts
        self._write_heartbeat = write_heartbeat
        self.system_names = list(job.nodes)
        """Name the files of the nodes' samples."""

    def facts(self, config: ExperimentConfig, root: Path) -> dict[str, Any]:
        """Return what the record's ``launch`` says of them."""
        return {
            "devices": [],
            "oversubscribed": False,
            "torchrun": torchrun_line(
                config,
                root,
                None,
                self._submission["device_type"],
                self._submission["cpus_per_rank"],
                self._job.nodes[0],
            ),
            "job": {
                "id": self._job.id,
                "cluster": self._submission["job"]["cluster"],
                "nodes": list(self._job.nodes),
                "restarts": self._job.restarts,
                "timeouts": self._timeouts,
            },
        }

    def ranks(self, run: StoredRun, attempt: int) -> SlurmRanks:
        """Return the ranks of an attempt, not started yet."""
        argv = srun_argv(
            run.config,
            run.paths.root,
            attempt,
            python="python" if run.config.slurm.setup else sys.executable,
            nnodes=len(self._job.nodes),
            port=free_port(),
        )
        return SlurmRanks(
            run.config,
            run.paths,
            attempt,
            self._job.nodes,
            argv,
            self._requests,
            self._write_heartbeat,
        )


def supervise_job(root: Path) -> None:
    """Supervise a run of this job."""
    paths = RunPaths(root)
    job = SlurmJob.of_this_process()
    earlier = read_json(paths.record) or {}
    if job.restarts and earlier.get("state") == RunState.FINISHED:
        return  # a user had it start again, and there is nothing left to do
    before = (earlier.get("launch") or {}).get("job") or {}
    timeouts = before.get("timeouts", 0) if before.get("id") == job.id else 0

    def is_mine(submission: dict[str, Any]) -> bool:
        return (submission.get("job") or {}).get("id") == job.id

    def work(journal: Journal, submission: dict[str, Any]) -> None:
        requests = JobRequests(paths, submission, job)
        if standing := requests.look():
            end_before_ranks(journal, standing[0])
            return
        sign = journal.write_heartbeat
        devices = JobDevices(job, submission, requests, timeouts, sign)
        ended = run_attempts(root, journal, submission, devices, requests)
        if not requeue_if_due(StoredRun(root), journal, job, timeouts, ended):
            cause = ended[1] or {}
            is_hurried = cause.get("by") in (BY_SLURM, BY_TIME_LIMIT)
            write_final_record(root, journal, devices, ended, is_hurried=is_hurried)

    supervise(paths, is_mine, work, attempt=earlier.get("attempt", -1) + 1)


def requeue_if_due(
    run: StoredRun,
    journal: Journal,
    job: SlurmJob,
    timeouts: int,
    ended: tuple[RunState, dict[str, Any] | None],
) -> bool:
    """Put a run into the queue again if it should continue; return whether it is."""
    slurm = run.config.slurm
    # A run that was asked to stop must not wait again.
    if not slurm.slurm_requeue or retry_io(lambda: read_json(run.paths.stop)):
        return False
    restarts_left = slurm.slurm_max_num_timeout - timeouts
    state, cause = ended
    by = cause["by"] if cause and state is RunState.STOPPED else None
    # A cluster may announce a preemption by the signal that a time limit has.
    if by in (BY_SLURM, BY_TIME_LIMIT) and job.is_preempted():
        why = f"preempted by another job; {_requeue_text(run.paths)}"
    elif restarts_left > 0 and (why := requeue_reason(ended, run.paths)):
        journal.record["launch"]["job"]["timeouts"] += 1
        why += f" (requeues left: {restarts_left - 1})"
    else:
        return False
    return _requeue(journal, job, why)


def requeue_reason(
    ended: tuple[RunState, dict[str, Any] | None], paths: RunPaths
) -> str | None:
    """Return why the job should be put into the queue again; None if it should not."""
    state, cause = ended
    if state is RunState.STOPPED and cause and cause["by"] == BY_TIME_LIMIT:
        if cause["forced"] and not paths.has_checkpoint:
            return None  # the next time would end as this one
        return f"time limit reached; {_requeue_text(paths)}"
    if state is RunState.FAILED and cause and cause["kind"] == "node":
        return f"{cause['message']}; {_requeue_text(paths)}"
    return None


def _requeue_text(paths: RunPaths) -> str:
    if paths.has_checkpoint:
        return "requeued, continues from its checkpoint"
    return "requeued, starts from the beginning"


def _requeue(journal: Journal, job: SlurmJob, why: str) -> bool:
    """Put the job into the queue again; say whether Slurm agreed."""
    reason = f"Slurm: {why}"
    queue = {"position": None, "length": None, "reason": reason, "since": utc_now()}
    journal.record["queue"] = queue
    journal.set_state(RunState.QUEUED, **queue)
    is_queued = job.requeue()
    journal.record["queue"] = None
    return is_queued


def main() -> None:
    """Supervise the run whose folder is the argument."""
    become_subreaper()
    root = Path(sys.argv[1])
    supervise_job(root)
    state = (read_json(RunPaths(root).record) or {}).get("state")
    # Slurm's own lists should say what the record says: other jobs may depend on it.
    sys.exit(0 if state in (RunState.FINISHED, RunState.QUEUED) else 1)


if __name__ == "__main__":
    main()
