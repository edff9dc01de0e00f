"""`python -m nbkit.launch.slurm_job RUN_DIR`: supervises a run from within its job.

Slurm starts it on the first node of the job, and again after a requeue. It does what
the supervisor of one machine does, with an agent on every node (`nbkit.launch.node`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.launch.attempts import run_attempts, write_last_word
from nbkit.launch.command import torchrun_line
from nbkit.launch.journal import Journal
from nbkit.launch.node_agents import NodeAgents
from nbkit.launch.requests import StopRequests
from nbkit.launch.sbatch import srun_argv
from nbkit.launch.supervisor import become_supervisor, end_before_ranks, supervise
from nbkit.store.paths import RunPaths
from nbkit.store.record import RunState, read_json, utc_now
from nbkit.store.runs import StoredRun

__all__: list[str] = []

BY_SLURM = "slurm"
BY_TIME_LIMIT = "time limit"


@dataclass(frozen=True)
class Job:
    """The job that this process is the first of."""

    id: str
    restarts: int
    """How often Slurm has started it again."""
    nodes: tuple[str, ...]
    """What Slurm calls its nodes, this one first."""

    @classmethod
    def of_this_process(cls) -> Job:
        """Return the job, as Slurm's variables tell."""
        listed = subprocess.run(
            ["scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        restarts = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        nodes = tuple(listed.stdout.split())
        return cls(os.environ["SLURM_JOB_ID"], restarts, nodes)

    def makes_way(self) -> bool:
        """Return whether Slurm gives the job some time to end for another one.

        By itself it takes a job that ends in that time for one that is done.
        """
        asked = subprocess.run(
            ["squeue", "--noheader", f"--jobs={self.id}", "--Format=PreemptTime"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return asked.stdout.strip()[:1].isdigit()


class JobRequests(StopRequests):
    """As `StopRequests`; Slurm asks by signals, too."""

    def __init__(
        self, paths: RunPaths, submission: dict[str, Any], stop_grace_seconds: float
    ) -> None:
        super().__init__(paths, submission, stop_grace_seconds)
        # As sbatch was told: some time before the limit.
        signal.signal(signal.SIGUSR1, self._on_time_limit)
        # Somebody has written a request to stop. To list the folder makes a file
        # server tell what is new in it.
        signal.signal(signal.SIGUSR2, lambda number, frame: list(paths.root.iterdir()))

    def note_sigterm(self) -> None:
        """Take it that Slurm ends the job."""
        # scancel, a preemption or a requeue by somebody: Slurm does not say which.
        self._terminated_by = self._terminated_by or BY_SLURM

    def _on_sigterm(self, number: int, frame: object) -> None:
        self.note_sigterm()

    def _on_time_limit(self, number: int, frame: object) -> None:
        self._terminated_by = self._terminated_by or BY_TIME_LIMIT


class JobDevices:
    """The nodes of a job, held over all attempts.

    Parameters
    ----------
    job
        The job.
    submission
        How the run was launched.
    requests
        Who wants it to stop.
    timeouts
        How often the run was put into the queue again before.
    """

    def __init__(
        self,
        job: Job,
        submission: dict[str, Any],
        requests: JobRequests,
        timeouts: int,
    ) -> None:
        self._job = job
        self._submission = submission
        self._requests = requests
        self._timeouts = timeouts
        self.system_names = list(job.nodes)
        """Name the files of the nodes' samples."""

    def facts(self, config: ExperimentConfig, root: Path) -> dict[str, Any]:
        """Return what the record's ``launch`` says of them."""
        return {
            "devices": [],
            "oversubscribed": False,
            "torchrun": torchrun_line(config, root, None, self._job.nodes[0]),
            "job": {
                "id": self._job.id,
                "cluster": self._submission["job"]["cluster"],
                "nodes": list(self._job.nodes),
                "restarts": self._job.restarts,
                "timeouts": self._timeouts,
            },
        }

    def ranks(self, run: StoredRun, attempt: int) -> NodeAgents:
        """Return the ranks of an attempt, not started yet."""
        argv = srun_argv(
            run.config,
            run.paths.root,
            python="python" if run.config.slurm.setup else sys.executable,
            nnodes=len(self._job.nodes),
        )
        return NodeAgents(
            run.config,
            run.paths,
            attempt,
            self._job.nodes,
            argv,
            self._submission["software"],
            is_unwanted=lambda: bool(self._requests.look()),
            on_sigterm=self._requests.note_sigterm,
        )

    def leave(self) -> None:
        """Do nothing: the job ends with this process, and with it its nodes."""


def supervise_job(root: Path) -> None:
    """Supervise a run of this job.

    Parameters
    ----------
    root
        The run's folder.
    """
    paths = RunPaths(root)
    job = Job.of_this_process()
    earlier = read_json(paths.record) or {}
    if job.restarts and earlier.get("state") == RunState.FINISHED:
        return  # somebody had it start again, and there is nothing left to do
    before = (earlier.get("launch") or {}).get("job") or {}
    timeouts = before.get("timeouts", 0) if before.get("id") == job.id else 0

    def is_mine(submission: dict[str, Any]) -> bool:
        return (submission.get("job") or {}).get("id") == job.id

    def work(journal: Journal, submission: dict[str, Any]) -> None:
        grace_seconds = submission["stop_grace_seconds"]
        requests = JobRequests(paths, submission, grace_seconds)
        if standing := requests.look():
            end_before_ranks(journal, standing[0])
            return
        devices = JobDevices(job, submission, requests, timeouts)
        ended = run_attempts(root, journal, submission, devices, requests)
        slurm = StoredRun(root).config.slurm
        left = slurm.slurm_max_num_timeout - timeouts
        why = None
        if _is_by_slurm(ended) and job.makes_way():
            why = "it made way for another job, and waits to go on from its checkpoint"
        elif left > 0 and (why := _why_again(ended)):
            journal.record["launch"]["job"]["timeouts"] += 1
            why += f" ({left - 1} more times)"
        if not (why and slurm.slurm_requeue and _requeue(journal, job, why)):
            write_last_word(journal, *ended)

    supervise(paths, is_mine, work, attempt=earlier.get("attempt", -1) + 1)


def _is_by_slurm(ended: tuple[RunState, dict[str, Any] | None]) -> bool:
    state, cause = ended
    return state is RunState.STOPPED and cause is not None and cause["by"] == BY_SLURM


def _why_again(ended: tuple[RunState, dict[str, Any] | None]) -> str | None:
    """Return why the job should be put into the queue again; None if it should not."""
    state, cause = ended
    if state is RunState.STOPPED and cause and cause["by"] == BY_TIME_LIMIT:
        return "it has reached its time limit, and waits to go on from its checkpoint"
    if state is RunState.FAILED and cause and cause["kind"] == "node":
        return f"{cause['message']}; it waits to go on from its checkpoint"
    return None


def _requeue(journal: Journal, job: Job, why: str) -> bool:
    """Put the job into the queue again; say whether Slurm agreed."""
    reason = f"Slurm: {why}"
    queue = {"position": None, "length": None, "reason": reason, "since": utc_now()}
    journal.record["queue"] = queue
    journal.set_state(RunState.QUEUED, **queue)
    # Slurm answers with SIGTERM, for which there is nothing left to do.
    done = subprocess.run(
        ["scontrol", "requeue", job.id], stdin=subprocess.DEVNULL, check=False
    )
    journal.record["queue"] = None
    return done.returncode == 0


def main() -> None:
    """Supervise the run whose folder is the argument."""
    become_supervisor()
    root = Path(sys.argv[1])
    supervise_job(root)
    state = (read_json(RunPaths(root).record) or {}).get("state")
    # Slurm's own lists should say what the record says, for whom depends on the job.
    sys.exit(0 if state in (RunState.FINISHED, RunState.QUEUED) else 1)


if __name__ == "__main__":
    main()
