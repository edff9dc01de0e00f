"""State of a run that is a Slurm job: from its record first, then from Slurm.

The supervisor on the job's first node writes the record. Before its first word and
after a death without a last one, only Slurm knows.

References
----------
https://slurm.schedmd.com/job_reason_codes.html,
https://slurm.schedmd.com/squeue.html#SECTION_JOB-STATE-CODES
"""

from __future__ import annotations

import contextlib
import datetime
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbkit.reading import read_end
from nbkit.store.jobs import (
    ANSWER_SECONDS,
    GONE,
    Job,
    announce_job,
    find_job,
    why_unknown,
)
from nbkit.store.liveness import STALE_SECONDS, is_own_run, is_stale, unknown_text
from nbkit.store.network import refresh_nfs_cache
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState, iso, of_newest_attempt, read_json, unix_seconds

_LAST_BYTES = 8192
"""Of a job's log, where it says why it ended."""
_RUNNING_SECONDS = 15.0
"""A running run shows how by its files; Slurm is asked only whether it runs."""

_MAY_GO_ON = {
    *((RunState.STOPPED, "slurm"), (RunState.STOPPED, "time limit")),
    *((RunState.FAILED, "node"), (RunState.FAILED, "launch")),
}
"""Ends after which Slurm may have put the job into the queue again by itself: ranks
that cannot be started, too, may be the loss of a node."""

_OLD_SECONDS = 60.0
"""The age of an older answer is shown."""

_REASONS = {
    "BeginTime": "begin time in the future (such as after a requeue)",
    "Dependency": "waiting for another job to end",
    "DependencyNeverSatisfied": "its dependency can never be satisfied; stop the run",
    "JobHeldUser": "held by a user; run scontrol release JOB_ID",
    "None": "pending",
    "PartitionNodeLimit": "more nodes requested than the partition allows",
    "PartitionTimeLimit": "time limit above the limit of the partition",
    "Priority": "jobs of higher priority are ahead",
    "ReqNodeNotAvail": "requested nodes are down, drained or reserved",
    "Resources": "waiting for free nodes",
    "job_requeued_in_held_state": "requeued and held; run scontrol release JOB_ID",
}
"""Of the frequent ones; Slurm's own word for any other says enough."""
_ENDS = {
    "NODE_FAIL": "a node has failed",
    "OUT_OF_MEMORY": "memory limit exceeded",
    "PREEMPTED": "preempted by a job of higher priority",
    "TIMEOUT": "time limit reached",
}

Line = dict[str, Any]


@dataclass(frozen=True)
class Standing:
    """Where a run stands."""

    state: RunState
    cause: Line | None = None
    """Why it failed, was stopped or is unknown; None for any other state."""
    queue: Line | None = None
    """Of one that waits: ``position`` and ``length`` (None: Slurm has no such thing),
    ``reason`` and ``since``."""


def standing(paths: RunPaths, submission: Line, record: Line) -> Standing:
    """Return where a run stands."""
    attempt = of_newest_attempt(record, submission)
    written = RunState(attempt["state"]) if attempt else None
    if written is not None and written.is_final:
        ended = Standing(written, attempt.get("cause"))
        again = _requeued(paths, submission, attempt) if may_go_on(attempt) else None
        return again or ended
    if written is not None and _is_alive_here(attempt):
        return Standing(written, queue=attempt.get("queue"))
    job = _job(paths, submission, written)
    if job is not None and job.has_ended:
        return _ended(paths, submission, job)
    has_begun = written not in (None, RunState.QUEUED)
    if job is None:
        waits = not has_begun
    elif written is RunState.QUEUED:
        # Put back by its supervisor, it may still be ending on its old nodes.
        is_ending = job.state == "COMPLETING" or _is_older(job, paths.record)
        waits = job.waits or is_ending
    else:
        waits = job.waits and not (has_begun and _is_older(job, paths.record))
    if waits:
        return Standing(RunState.QUEUED, queue=_queue(paths, submission, attempt, job))
    # Only now: a job that waits gives no signs.
    if has_begun and _slurm_is_silent(paths, submission, job) and is_stale(paths):
        return Standing(RunState.UNKNOWN, _unknown_cause(paths, submission, attempt))
    return Standing(written if has_begun and written else RunState.STARTING)


def _slurm_is_silent(paths: RunPaths, submission: Line, job: Job | None) -> bool:
    """Return whether Slurm has said nothing of a job for long, or cannot be asked."""
    if job is not None:
        return job.age_seconds > STALE_SECONDS
    # A first question may take longer than a reader waits for it.
    return not is_own_run(paths) or bool(why_unknown(submission["job"].get("cluster")))


def _unknown_cause(paths: RunPaths, submission: Line, attempt: Line) -> Line:
    """Return why it is unknown whether a run continues."""
    job = submission["job"]
    why = why_unknown(job.get("cluster")) if is_own_run(paths) else ""
    what = f"unknown state of Slurm job {job['id']}" + (f" ({why})" if why else "")
    what += f"; {unknown_text(paths, attempt.get('supervisor') or {})}"
    log = str(paths.job_log(job["id"]))
    return {"kind": "unknown", "rank": None, "message": what, "log": log}


def may_go_on(record: Line) -> bool:
    """Return whether Slurm may start a run again that has a last word.

    A supervisor that Slurm ends cannot know whether the job is put into the queue
    again: after a preemption, say, or the loss of a node.
    """
    cause = record.get("cause") or {}
    ended = (record.get("state"), cause.get("by") or cause.get("kind"))
    has_job = "job" in (record.get("launch") or {})
    return has_job and ended in _MAY_GO_ON


def _requeued(paths: RunPaths, submission: Line, attempt: Line) -> Standing | None:
    """Return where a run stands that has ended and may continue; None otherwise."""
    # Where Slurm's last answer does not name it, it has ended: no need to ask for it.
    job = _job(paths, submission, None, is_urgent=False)
    if job is None or job.has_ended:
        return None
    if job.waits:
        return Standing(RunState.QUEUED, queue=_queue(paths, submission, attempt, job))
    is_ending = job.state == "COMPLETING" or _is_older(job, paths.record)
    return Standing(RunState.STOPPING if is_ending else RunState.STARTING)


def _is_alive_here(record: Line) -> bool:
    supervisor = record.get("supervisor")
    return (
        supervisor is not None
        and ProcessIdentity.from_dict(supervisor).is_alive() is True
    )


def _job(
    paths: RunPaths,
    submission: Line,
    written: RunState | None,
    *,
    is_urgent: bool = True,
) -> Job | None:
    """Return Slurm's word; None if it says nothing, or would speak of another job."""
    # Of other users Slurm may tell nothing, which must not look like an end; and
    # another cluster's number is another job here.
    if not is_own_run(paths):
        return None
    is_running = written is RunState.RUNNING
    age_seconds = _RUNNING_SECONDS if is_running else ANSWER_SECONDS
    job = submission["job"]
    text = submission.get("time") if is_urgent else None
    moment = unix_seconds(text) if text else None
    return find_job(str(job["id"]), job.get("cluster"), age_seconds, moment)


def announce(paths: RunPaths) -> None:
    """Say that `standing` will be asked of a run: one question will answer for many."""
    submission = read_json(paths.submission) or {}
    job = submission.get("job")
    if job and is_own_run(paths):
        announce_job(str(job["id"]), job.get("cluster"))


def _is_older(job: Job, record: Path) -> bool:
    """Return whether the record was written after Slurm's answer."""
    try:
        # By two clocks, maybe; the next answer is newer than both.
        return record.stat().st_mtime > time.time() - job.age_seconds
    except OSError:
        return False


def _queue(paths: RunPaths, submission: Line, attempt: Line, job: Job | None) -> Line:
    """Return for what a run waits: the supervisor's word, then Slurm's."""
    if job is not None:
        slurm = waiting_words(job)
    elif not is_own_run(paths):
        slurm = "Slurm: job state unknown (another user's job)"
    else:
        why = why_unknown(submission["job"].get("cluster"))
        state = f"unknown ({why})" if why else "not known yet"
        slurm = f"Slurm: job state {state}"
    queue = attempt.get("queue") or {}
    reason = "; ".join(filter(None, (queue.get("reason"), slurm)))
    return {
        "position": None,
        "length": None,
        "reason": reason,
        "since": queue.get("since") or _queued_since(paths, submission, attempt),
    }


def _queued_since(paths: RunPaths, submission: Line, attempt: Line) -> str | None:
    """Return since when a run waits whose supervisor has not said so.

    One that has run already waits since its last word, and not since its launch.
    """
    if attempt:
        with contextlib.suppress(OSError):
            return iso(paths.record.stat().st_mtime)
    return submission.get("time")


def _ended(paths: RunPaths, submission: Line, job: Job) -> Standing:
    """Return how a run ended whose job is over, though its record has no end."""
    refresh_nfs_cache(paths.root)
    # It may have ended properly between the two looks.
    record = read_json(paths.record) or {}
    attempt = of_newest_attempt(record, submission)
    if attempt and (written := RunState(attempt["state"])).is_final:
        return Standing(written, attempt.get("cause"))
    stop = read_json(paths.stop)
    # Asked to stop before it could listen, it ends as Slurm's signal ends it.
    if job.state == "CANCELLED" or (stop and (job.state == GONE or not attempt)):
        by = stop["by"] if stop else "Slurm (scancel)"
        when = "before its ranks were started"
        if attempt:
            when = "and its supervisor wrote no final record"
        cause = _cause("stopped", f"stopped by {by}, {when}", paths, job)
        return Standing(RunState.STOPPED, cause | {"by": by})
    what = f"Slurm job {job.id}: {end_words(job)}"
    if job.state == GONE:
        what = f"Slurm job {job.id} ended; its exit state is no longer available"
    if attempt:
        advice = "the run has no checkpoint: launch it again"
        if paths.has_checkpoint:
            advice = "resume() continues from the newest checkpoint"
        what += f"; its supervisor wrote no final record; {advice}"
    else:
        what += f"; {_start_failure(paths, job)}"
    return Standing(RunState.LOST, _cause("lost", what, paths, job))


def _start_failure(paths: RunPaths, job: Job) -> str:
    log = paths.job_log(job.id)
    refresh_nfs_cache(log.parent)
    if log.exists():
        last = _last_log_line(log)
        last_line = f": {last.rstrip('.')}" if last else ""
        return f"the supervisor did not start{last_line}; its output is in {log}"
    if not job.nodes:
        return f"the supervisor did not start, and {log} does not exist"
    return (
        f"{job.nodes} did not write {log}: check that the store (NBKIT_HOME) is on a "
        "file system shared with the compute nodes"
    )


def _last_log_line(log: Path) -> str:
    """Return the last line that nbkit has printed to a job's log, else the last one."""
    try:
        lines = read_end(log, _LAST_BYTES)[0].decode(errors="replace").splitlines()
    except OSError:
        return ""
    printed = [line.strip() for line in lines if line.strip()]
    own = [line for line in printed if line.startswith("nbkit: ")]
    return (own or printed or [""])[-1][:300]


def _cause(kind: str, message: str, paths: RunPaths, job: Job) -> Line:
    log = str(paths.job_log(job.id))
    return {"kind": kind, "rank": None, "message": message, "log": log}


# Words


def waiting_words(job: Job) -> str:
    """Return why a job waits, and when it will start if Slurm says so."""
    words = f"Slurm: {_reason(job)}"
    if job.start_estimate is not None:
        start = datetime.datetime.fromisoformat(job.start_estimate)
        words += f"; starts about {start:%Y-%m-%d %H:%M} UTC (Slurm's estimate)"
    if job.age_seconds > _OLD_SECONDS:
        words += f"; Slurm's answer is {job.age_seconds / 60:.0f} min old"
    return words


def end_words(job: Job) -> str:
    """Return a job's end state and reason, with its nodes."""
    nodes = f" on {job.nodes}" if job.nodes else ""
    meaning = _ENDS.get(job.state)
    why = job.reason if job.reason not in ("", "None", "NonZeroExitCode") else ""
    cause = ", ".join(filter(None, (meaning, why and f"reason {why}")))
    return f"{job.state}{nodes}" + (f" ({cause})" if cause else "")


def _reason(job: Job) -> str:
    if job.state == "CONFIGURING":
        return "its nodes are booting (CONFIGURING)"
    word = job.reason or "None"
    # Such as "ReqNodeNotAvail, UnavailableNodes:n1".
    meaning = _REASONS.get(word.partition(",")[0])
    if meaning is None:
        return word
    return meaning if word == "None" else f"{meaning} ({word})"
