"""Slurm's states and reasons as plain text.

References
----------
https://slurm.schedmd.com/job_reason_codes.html,
https://slurm.schedmd.com/squeue.html#SECTION_JOB-STATE-CODES
"""

from __future__ import annotations

import datetime

from nbkit.store.jobs import Job

_OLD_SECONDS = 60.0
"""The age of an older answer is shown."""

_REASONS = {
    "AccountNotAllowed": "its account has no access to the partition",
    "AssociationJobLimit": "account job limit reached",
    "BadConstraints": "no node matches its constraints",
    "BeginTime": "its begin time is not reached (a requeued job waits for a while)",
    "Dependency": "another job has to end first",
    "DependencyNeverSatisfied": "the job it depends on failed, so it will never "
    "start: stop it",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its QOS is not valid",
    "JobHeldAdmin": "held by an administrator",
    "JobHeldUser": "held by a user; run scontrol release",
    "JobHoldMaxRequeue": "held after too many requeues",
    "JobLaunchFailure": "held after a launch failure",
    "Licenses": "waiting for licences",
    "NodeDown": "a node that it needs is down",
    "None": "pending",
    "PartitionConfig": "it requests more than its partition allows",
    "PartitionDown": "its partition is down",
    "PartitionNodeLimit": "it requests more nodes than its partition allows",
    "PartitionTimeLimit": "its time limit is above its partition's",
    "Priority": "jobs of higher priority are ahead",
    "Prolog": "its nodes are being prepared",
    "ReqNodeNotAvail": "requested nodes are down, drained or reserved",
    "Reservation": "its reservation has not begun",
    "Resources": "waiting for free nodes",
    "SystemFailure": "Slurm, a disk or the network has failed",
    "launch_failed_requeued_held": "held after a launch failure",
    "job_requeued_in_held_state": "requeued and held; run scontrol release",
}
_PREFIXES = {
    "AssocGrp": "account resource limit reached",
    "AssocMax": "it exceeds a limit of its account",
    "Nodes required": "required nodes are down, drained or reserved for jobs of "
    "higher priority",
    "QOSGrp": "resource limit of its QOS reached",
    "QOSMax": "it exceeds its QOS limit per user or job",
    "QOS": "its QOS does not allow it now",
    "ReqNodeNotAvail": _REASONS["ReqNodeNotAvail"],
}
_ENDS = {
    "BOOT_FAIL": "a node could not be booted",
    "COMPLETED": "its script ended",
    "FAILED": "its script failed",
    "NODE_FAIL": "a node has failed",
    "OUT_OF_MEMORY": "it exceeded its memory limit",
    "PREEMPTED": "it was preempted by a job of higher priority",
    "TIMEOUT": "its time limit was reached",
}


def waiting_words(job: Job) -> str:
    """Return why a job waits, and when it will start if Slurm says so."""
    words = f"Slurm: {_reason(job)}"
    if job.start_estimate is not None:
        words += f"; starts about {_moment(job.start_estimate)} (Slurm's estimate)"
    if job.age_seconds > _OLD_SECONDS:
        words += f"; as of {job.age_seconds / 60:.0f} min ago, Slurm does not respond"
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
    meaning = _REASONS.get(word) or next(
        (text for start, text in _PREFIXES.items() if word.startswith(start)), None
    )
    if meaning is None:
        return word
    return meaning if word == "None" else f"{meaning} ({word})"


def _moment(time: str) -> str:
    moment = datetime.datetime.fromisoformat(time)
    is_today = moment.date() == datetime.datetime.now(datetime.UTC).date()
    return f"{moment:%H:%M} UTC" if is_today else f"{moment:%Y-%m-%d %H:%M} UTC"
