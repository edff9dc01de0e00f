"""Where a run stands that is a job of Slurm: its record first, then Slurm's word.

The supervisor on the job's first node writes the record. Before its first word and
after a death without a last one, only Slurm knows.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbkit.store.job_words import end_words, waiting_words
from nbkit.store.jobs import ANSWER_SECONDS, GONE, Job, find_job, why_unknown
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState, read_json

__all__ = ["Standing", "may_go_on", "standing"]

_RUNNING_SECONDS = 15.0
"""A run that goes on tells how by its files; Slurm is asked only whether it does."""

Line = dict[str, Any]


@dataclass(frozen=True)
class Standing:
    """Where a run stands."""

    state: RunState
    cause: Line | None = None
    """Why it failed or was stopped; None for any other state."""
    queue: Line | None = None
    """Of one that waits: ``position`` and ``length`` (None: Slurm has no such thing),
    ``reason`` and ``since``."""


def standing(paths: RunPaths, submission: Line, record: Line) -> Standing:
    """Return where a run stands.

    Parameters
    ----------
    paths
        The run's files.
    submission
        With ``job``: what sbatch gave.
    record
        As it is now; empty before the supervisor's first write.
    """
    known = record if record.get("attempt", -1) >= submission["attempt"] else {}
    written = RunState(known["state"]) if known else None
    if written is not None and written.is_final:
        ended = Standing(written, known.get("cause"))
        return _again(paths, submission, known) or ended if may_go_on(known) else ended
    if written is not None and _is_alive_here(known):
        return Standing(written, queue=known.get("queue"))
    job = _job(paths, submission["job"], written)
    if job is not None and job.has_ended:
        return _ended(paths, submission, job)
    has_begun = written not in (None, RunState.QUEUED)
    if job is None:
        waits = not has_begun
    else:
        waits = job.waits and not (has_begun and _is_older(job, paths.record))
    if waits:
        return Standing(RunState.QUEUED, queue=_queue(submission, known, job))
    return Standing(written if has_begun and written else RunState.STARTING)


def may_go_on(record: Line) -> bool:
    """Return whether Slurm may start a run again that has a last word.

    A supervisor that Slurm ends cannot know whether the job is put into the queue
    again: after a preemption, say, or the loss of a node.
    """
    cause = record.get("cause") or {}
    ended = (record.get("state"), cause.get("by") or cause.get("kind"))
    has_job = "job" in (record.get("launch") or {})
    return has_job and ended in ((RunState.STOPPED, "slurm"), (RunState.FAILED, "node"))


def _again(paths: RunPaths, submission: Line, known: Line) -> Standing | None:
    """Return where a run stands that has ended and may go on; None if it does not."""
    job = _job(paths, submission["job"], None)
    if job is None or job.has_ended:
        return None
    if job.waits:
        return Standing(RunState.QUEUED, queue=_queue(submission, known, job))
    is_ending = job.state == "COMPLETING" or _is_older(job, paths.record)
    return Standing(RunState.STOPPING if is_ending else RunState.STARTING)


def _is_alive_here(record: Line) -> bool:
    supervisor = record.get("supervisor")
    return (
        supervisor is not None
        and ProcessIdentity.from_dict(supervisor).is_alive() is True
    )


def _job(paths: RunPaths, job: Line, written: RunState | None) -> Job | None:
    """Return Slurm's word; None if it says nothing, or would speak of another job."""
    # Of other users Slurm may tell nothing, which must not look like an end; and
    # another cluster's number is somebody else's job here.
    try:
        is_own = paths.submission.stat().st_uid == os.geteuid()
    except OSError:
        return None
    if not is_own or paths.imported.exists():
        return None
    is_running = written is RunState.RUNNING
    age_seconds = _RUNNING_SECONDS if is_running else ANSWER_SECONDS
    return find_job(str(job["id"]), job.get("cluster"), age_seconds)


def _is_older(job: Job, record: Path) -> bool:
    """Return whether the record was written behind Slurm's answer."""
    try:
        # By two clocks, maybe; the next answer is newer than both.
        return record.stat().st_mtime > time.time() - job.age_seconds
    except OSError:
        return False


def _queue(submission: Line, known: Line, job: Job | None) -> Line:
    """Return for what a run waits: the supervisor's word, then Slurm's."""
    if job is None:
        why = why_unknown(submission["job"].get("cluster"))
        slurm = f"Slurm: not known, {why}" if why else "Slurm: not known yet"
    else:
        slurm = waiting_words(job)
    queue = known.get("queue") or {}
    reason = "; ".join(filter(None, (queue.get("reason"), slurm)))
    return {
        "position": None,
        "length": None,
        "reason": reason,
        "since": queue.get("since") or submission.get("time"),
    }


def _ended(paths: RunPaths, submission: Line, job: Job) -> Standing:
    """Return how a run ended whose job is over, though its record has no end."""
    _see_anew(paths.root)
    # It may have ended properly between the two looks.
    record = read_json(paths.record) or {}
    known = record if record.get("attempt", -1) >= submission["attempt"] else {}
    if known and (written := RunState(known["state"])).is_final:
        return Standing(written, known.get("cause"))
    stop = read_json(paths.stop)
    if job.state == "CANCELLED" or (job.state == GONE and stop):
        by = stop["by"] if stop else "Slurm (scancel)"
        when = "before its ranks were started"
        if known:
            when = "without a last word of its supervisor"
        cause = _cause("stopped", f"stopped by {by}, {when}", paths, job)
        return Standing(RunState.STOPPED, cause | {"by": by})
    what = f"Slurm says of job {job.id}: {end_words(job)}"
    if job.state == GONE:
        what = f"job {job.id} has ended, and Slurm has forgotten how"
    if known:
        what += f"; its supervisor left no last word; {_advice(paths)}"
    else:
        what += f"; its supervisor had not begun, {paths.job_log(job.id)} may say why"
    return Standing(RunState.LOST, _cause("lost", what, paths, job))


def _advice(paths: RunPaths) -> str:
    if any(paths.checkpoints.glob("*/complete.json")):
        return "resume() goes on from the newest checkpoint"
    return "it has no checkpoint: launch it anew"


def _cause(kind: str, message: str, paths: RunPaths, job: Job) -> Line:
    log = str(paths.job_log(job.id))
    return {"kind": kind, "rank": None, "message": message, "log": log}


def _see_anew(folder: Path) -> None:
    """Have a network file system look again which files the folder has now.

    NFS may answer from memory for a minute, but not who opens a folder (nfs(5),
    "Close-to-open cache consistency").
    """
    with contextlib.suppress(OSError):
        os.close(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
