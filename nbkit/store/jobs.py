"""States of Slurm jobs: one rate-limited query for all runs of a user.

``squeue`` lists all of this user's jobs together. It is asked by a separate thread: a
controller that hangs holds a reader up for a moment, and then the last answer stands.
A job that squeue has forgotten is looked up by ``sacct``, once, where Slurm keeps
accounts.

References
----------
https://slurm.schedmd.com/squeue.html, https://slurm.schedmd.com/sacct.html
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nbkit.store.record import iso
from nbkit.store.slurm import SlurmSilentError, ask_slurm

ANSWER_SECONDS = 10.0
"""An answer is good for so long."""
PATIENCE_SECONDS = 2.0
"""A reader waits no longer for one question."""
LIMIT_SECONDS = 20.0
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


def announce_job(job_id: str, cluster: str | None = None) -> None:
    """Let the next question be about this job, too, without asking it now."""
    _cluster(cluster).announce(job_id)


def why_unknown(cluster: str | None = None) -> str:
    """Return why Slurm's last answer is missing; empty if it is there."""
    return _cluster(cluster).trouble


class _Cluster:
    """One controller, asked by one thread at a time."""

    def __init__(self, name: str | None) -> None:
        self._options = () if name is None else (f"--clusters={name}",)
        self._lock = threading.Lock()
        self._wanted: set[str] = set()
        """Asked for since the last question began."""
        self._listed: dict[str, Job] = {}
        self._ended: dict[str, Job] = {}
        """Ends that were told: without accounts, nothing better comes."""
        self._gone: dict[str, Job] = {}
        self._heard_at: float | None = None
        self._heard_time: float | None = None
        """The same moment in Unix time."""
        self._rests_until = 0.0
        self._question: threading.Thread | None = None
        self._asked_at = 0.0
        self._has_accounts = True
        self.trouble = ""

    def announce(self, job_id: str) -> None:
        with self._lock:
            if job_id not in self._gone:
                self._wanted.add(job_id)

    def find(
        self, job_id: str, max_age_seconds: float, submitted_at: float | None
    ) -> Job | None:
        with self._lock:
            if job_id in self._gone:
                return self._gone[job_id]
            # The last answer should have named the job, and did not.
            if (
                job_id not in self._listed
                and submitted_at is not None
                and self._heard_time is not None
                and submitted_at + _OTHER_CLOCK_SECONDS <= self._heard_time
            ):
                if not self._has_accounts:
                    return self._gone.setdefault(job_id, Job(job_id, GONE))
                question = self._begin(self._record_ended, {job_id})
            else:
                self._wanted.add(job_id)
                question = self._begin_if_due(max_age_seconds)
            remaining_seconds = self._asked_at + PATIENCE_SECONDS - time.monotonic()
        if question is not None and remaining_seconds > 0:
            question.join(remaining_seconds)
        with self._lock:
            job = self._gone.get(job_id) or self._listed.get(job_id)
            if job is None or self._heard_at is None:
                return None
            if job.has_ended:
                self._ended[job_id] = job
            return replace(job, age_seconds=time.monotonic() - self._heard_at)

    def _begin_if_due(self, max_age_seconds: float) -> threading.Thread | None:
        """Return the question that is to be waited for; None needs no other answer."""
        now = time.monotonic()
        if self._heard_at is not None and now - self._heard_at < max_age_seconds:
            return None
        if self._question is None and now >= self._rests_until:
            return self._begin(self._ask_squeue)
        return self._question

    def _begin(self, ask: Callable[..., None], *about: Any) -> threading.Thread | None:
        """Return the thread that asks; another one if that has begun before.

        None if it cannot be started, such as at a limit of threads.
        """
        if self._question is None:
            question = threading.Thread(
                target=self._run, args=(ask, *about), name="nbkit squeue", daemon=True
            )
            self._asked_at = time.monotonic()
            try:
                question.start()
            except RuntimeError as error:
                self.trouble = f"a query cannot be started: {error}"
                return None
            # It waits for the lock before it says that it has ended.
            self._question = question
        return self._question

    def _run(self, ask: Callable[..., None], *about: Any) -> None:
        try:
            ask(*about)
        finally:
            with self._lock:
                self._question = None

    def _ask_squeue(self) -> None:
        # Of one user, the controller picks the jobs; or it would send all users'.
        question = (
            *self._options,
            *("--noheader", "--states=all", f"--user={os.geteuid()}"),
            f"--format={'|'.join(_FIELDS)}",
        )
        with self._lock:
            wanted, self._wanted = self._wanted, set()
        asked_at, asked_time = time.monotonic(), time.time()
        try:
            text = ask_slurm("squeue", *question, limit_seconds=LIMIT_SECONDS)
        except SlurmSilentError as error:
            with self._lock:
                self.trouble = str(error)
                self._rests_until = time.monotonic() + _REST_SECONDS
                self._wanted |= wanted
        else:
            rows = (line.split("|", len(_FIELDS) - 1) for line in text.splitlines())
            jobs = {row[0]: _job(row) for row in rows if len(row) == len(_FIELDS)}
            missing = wanted - jobs.keys()
            with self._lock:
                self.trouble = ""
                # Until accounts tell of them, their last word stands.
                last = {i: job for i, job in self._listed.items() if i in missing}
                self._listed = self._ended | last | jobs
                self._heard_at, self._heard_time = asked_at, asked_time
            # Accounts may be slow; what squeue has said does not wait for them.
            self._record_ended(missing)

    def _record_ended(self, missing: Collection[str]) -> None:
        gone = self._ask_sacct(missing)
        with self._lock:
            self._gone |= gone

    def _ask_sacct(self, missing: Collection[str]) -> dict[str, Job]:
        """Return how jobs ended that squeue has forgotten."""
        with self._lock:
            gone = {i: self._ended.get(i, Job(i, GONE)) for i in missing}
        if not missing or not self._has_accounts:
            return gone
        try:
            text = ask_slurm(
                "sacct",
                *self._options,
                *("--noheader", "--parsable2", "--allocations"),
                *("--format=JobIDRaw,State,NodeList", f"--jobs={','.join(missing)}"),
                limit_seconds=LIMIT_SECONDS,
            )
        except SlurmSilentError as error:
            # These two stay so. A data base that is down may be there for the next
            # end; for this one it is not worth another wait.
            words = ("accounting storage is disabled", "sacct is not installed")
            if any(word in str(error) for word in words):
                self._has_accounts = False
            return gone
        for line in text.splitlines():
            job_id, _, fields = line.partition("|")
            state, _, nodes = fields.partition("|")
            # Such as "CANCELLED by 1000".
            job = Job(job_id, state.partition(" ")[0], nodes=nodes)
            if job_id in gone and job.has_ended:
                gone[job_id] = job
        return gone


clusters: dict[str | None, _Cluster] = {}


# A forked process has no thread that asks, but has its locks.
os.register_at_fork(after_in_child=lambda: clusters.clear())


def _cluster(name: str | None) -> _Cluster:
    # One step, so that it needs no lock.
    return clusters.setdefault(name, _Cluster(name))


def _job(row: Sequence[str]) -> Job:
    job_id, state, start, nodes, reason = row
    job = Job(job_id, state, reason=reason.strip(), nodes=nodes)
    # Of a job that runs, it is when it did start.
    if job.waits and start.isdecimal():
        job = replace(job, start_estimate=iso(int(start)))
    return job
