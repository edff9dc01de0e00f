"""States of Slurm jobs: one rate-limited query for all runs of a user.

``squeue`` lists all of this user's jobs together. It is asked by a separate thread: a
controller that hangs holds a reader up for a moment, and then the last answer stands.
How a job ended that squeue has forgotten, after some minutes, ``sacct`` may still tell.

References
----------
https://slurm.schedmd.com/squeue.html
"""

from __future__ import annotations

import datetime
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nbkit.store.slurm import SlurmSilentError, ask_slurm

ANSWER_SECONDS = 10.0
"""An answer is good for so long."""
_PATIENCE_SECONDS = 2.0
"""A reader waits no longer for one question."""
_LIMIT_SECONDS = 20.0
"""A busy controller takes some seconds; one that is down, this or more."""
_REST_SECONDS = 30.0
"""Until the next question, after one that had no answer."""

_OTHER_CLOCK_SECONDS = 60.0
"""By so much the clock of another login node may be wrong."""

GONE = "GONE"
"""The state of a job that Slurm has forgotten; all others are Slurm's own words."""

_WAITING = {
    *("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD"),
    *("RESV_DEL_HOLD", "SPECIAL_EXIT"),
}
_ENDED = {
    *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
    *("OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT", GONE),
}
# Free text comes last. --format has been there longer than --Format and --json.
_FIELDS = ("%i", "%T", "%S", "%N", "%r")


@dataclass(frozen=True)
class Job:
    """One job of Slurm's."""

    id: str
    state: str
    """Slurm's word, such as ``PENDING``, or `GONE`."""
    reason: str = ""
    """Slurm's word for why it waits or has ended; ``None`` is one of them."""
    start_estimate: str | None = None
    """When it will start as Slurm thinks (UTC, ISO 8601); None if it does not say."""
    nodes: str = ""
    """Such as ``n[1-2]``; empty before it has some."""
    age_seconds: float = 0.0
    """How long ago Slurm said so."""

    @property
    def waits(self) -> bool:
        """Whether it has not started, or will start again."""
        return self.state in _WAITING

    @property
    def has_ended(self) -> bool:
        """Whether it no longer runs, and will not start by itself."""
        return self.state in _ENDED


def find_job(
    job_id: str,
    cluster: str | None = None,
    max_age_seconds: float = ANSWER_SECONDS,
    submitted_at: float | None = None,
) -> Job | None:
    """Return what Slurm says of one of this user's jobs."""
    return _cluster(cluster).find(job_id, max_age_seconds, submitted_at)


def why_unknown(cluster: str | None = None) -> str:
    """Return why Slurm's last answer is missing; empty if it is there."""
    return _cluster(cluster).trouble


class _Cluster:
    """One controller, asked by one thread at a time."""

    def __init__(self, name: str | None) -> None:
        self._options = () if name is None else (f"--clusters={name}",)
        self._lock = threading.Lock()
        self._asked_for: dict[str, float] = {}
        """Since when jobs were asked for, in Unix time."""
        self._found: dict[str, Job] = {}
        self._gone: set[str] = set()
        self._heard_at: float | None = None
        self._heard_time = 0.0
        """The same moment in Unix time."""
        self._rests_until = 0.0
        self._question: threading.Thread | None = None
        self._asked_at = 0.0
        self.trouble = ""

    def find(
        self, job_id: str, max_age_seconds: float, submitted_at: float | None
    ) -> Job | None:
        with self._lock:
            if job_id in self._gone:
                return Job(job_id, GONE)
            # Only a later question's answer can lack it.
            since = self._asked_for.setdefault(job_id, time.time())
            if submitted_at is not None:
                since = min(since, submitted_at + _OTHER_CLOCK_SECONDS)
            question = self._begin_if_due(max_age_seconds)
            remaining_seconds = self._asked_at + _PATIENCE_SECONDS - time.monotonic()
        if question is not None and remaining_seconds > 0:
            question.join(remaining_seconds)
        with self._lock:
            if self._heard_at is None:
                return None
            if job := self._found.get(job_id):
                age_seconds = time.monotonic() - self._heard_at
                return replace(job, age_seconds=age_seconds)
            if since > self._heard_time:
                return None
            self._gone.add(job_id)
            return Job(job_id, GONE)

    def _begin_if_due(self, max_age_seconds: float) -> threading.Thread | None:
        """Return the question that is to be waited for; None needs no other answer."""
        now = time.monotonic()
        if self._heard_at is not None and now - self._heard_at < max_age_seconds:
            return None
        if self._question is None and now >= self._rests_until:
            question = threading.Thread(
                target=self._run, name="nbkit squeue", daemon=True
            )
            self._asked_at = now
            try:
                question.start()
            except RuntimeError as error:  # such as at a limit of threads
                self.trouble = f"it cannot be asked: {error}"
                return None
            # It waits for the lock before it says that it has ended.
            self._question = question
        return self._question

    def _run(self) -> None:
        jobs, trouble = None, ""
        asked_at, asked_time = time.monotonic(), time.time()
        try:
            # Of one user, the controller picks the jobs; or it would send all users'.
            text = ask_slurm(
                "squeue",
                *self._options,
                *("--noheader", "--states=all", f"--user={os.geteuid()}"),
                f"--format={'|'.join(_FIELDS)}",
                limit_seconds=_LIMIT_SECONDS,
            )
            jobs = _jobs(text)
        except SlurmSilentError as error:
            trouble = str(error)
        finally:
            with self._lock:
                self._question, self.trouble = None, trouble
                if jobs is None:
                    self._rests_until = time.monotonic() + _REST_SECONDS
                else:
                    # The last word on what squeue forgets soon stands.
                    last = {i: job for i, job in self._found.items() if job.has_ended}
                    self._found = last | jobs
                    self._heard_at, self._heard_time = asked_at, asked_time


_clusters: dict[str | None, _Cluster] = {}


# A forked process has no thread that asks, but has its locks.
os.register_at_fork(after_in_child=lambda: _clusters.clear())


def _cluster(name: str | None) -> _Cluster:
    # One step, so that it needs no lock.
    return _clusters.setdefault(name, _Cluster(name))


def _jobs(text: str) -> dict[str, Job]:
    rows = (line.split("|", len(_FIELDS) - 1) for line in text.splitlines())
    jobs = [_job(row) for row in rows if len(row) == len(_FIELDS)]
    return {job.id: job for job in jobs}


def _job(row: Sequence[str]) -> Job:
    job_id, state, start, nodes, reason = row
    job = Job(job_id, state, reason=reason.strip(), nodes=nodes)
    # Of a job that runs, it is when it did start.
    if job.waits and start.isdecimal():
        moment = datetime.datetime.fromtimestamp(int(start), datetime.UTC)
        job = replace(job, start_estimate=moment.isoformat().replace("+00:00", "Z"))
    return job
