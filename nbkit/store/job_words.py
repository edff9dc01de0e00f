"""What Slurm's words mean, in plain words.

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
    "AccountNotAllowed": "its account may not use the partition",
    "AssociationJobLimit": "its account has as many jobs as it may",
    "BadConstraints": "no node has what it asks for",
    "BeginTime": "its time to begin has not come; a job that starts over waits a while",
    "Dependency": "another job has to end first",
    "DependencyNeverSatisfied": "the job that it waits for has failed, so it will "
    "never start: stop it",
    "InvalidAccount": "its account is not valid",
    "InvalidQOS": "its quality of service is not valid",
    "JobHeldAdmin": "an administrator holds it",
    "JobHeldUser": "a user holds it; scontrol release lets it go",
    "JobHoldMaxRequeue": "it was started over too often and is held",
    "JobLaunchFailure": "it could not be started and is held",
    "Licenses": "it waits for licences",
    "NodeDown": "a node that it needs is down",
    "None": "Slurm has not looked at it yet",
    "PartitionConfig": "it asks for more than its partition allows",
    "PartitionDown": "its partition is down",
    "PartitionNodeLimit": "it asks for more nodes than its partition allows",
    "PartitionTimeLimit": "its time limit is above its partition's",
    "Priority": "jobs of higher priority come first",
    "Prolog": "its nodes are being prepared",
    "ReqNodeNotAvail": "nodes that it asks for are down, drained or reserved",
    "Reservation": "its reservation has not begun",
    "Resources": "it waits for nodes to become free",
    "SystemFailure": "Slurm, a disk or the network has failed",
    "launch_failed_requeued_held": "it could not be started and is held",
    "job_requeued_in_held_state": "it was put back and is held; scontrol release lets "
    "it go",
}
_PREFIXES = {
    "AssocGrp": "its account uses as much as it may",
    "AssocMax": "it is above a limit of its account",
    "Nodes required": "nodes that it needs are down, drained or reserved for jobs of "
    "higher priority",
    "QOSGrp": "all jobs of its quality of service together use as much as they may",
    "QOSMax": "it is above a limit of its quality of service for one user or job",
    "QOS": "its quality of service does not allow it now",
    "ReqNodeNotAvail": _REASONS["ReqNodeNotAvail"],
}
_ENDS = {
    "BOOT_FAIL": "a node could not be booted",
    "COMPLETED": "its script has ended",
    "FAILED": "its script has failed",
    "NODE_FAIL": "a node has failed",
    "OUT_OF_MEMORY": "it used more memory than it had asked for",
    "PREEMPTED": "it was preempted by a job of higher priority",
    "TIMEOUT": "its time limit was reached",
}


def waiting_words(job: Job) -> str:
    """Return why a job waits, and when it will start if Slurm says so."""
    words = f"Slurm: {_reason(job)}"
    if job.start_estimate is not None:
        words += f"; starts about {_moment(job.start_estimate)} (Slurm's estimate)"
    if job.age_seconds > _OLD_SECONDS:
        words += f"; as of {job.age_seconds / 60:.0f} min ago, Slurm does not answer"
    return words


def end_words(job: Job) -> str:
    """Return how a job ended, by Slurm's word and with its nodes."""
    nodes = f" on {job.nodes}" if job.nodes else ""
    meaning = _ENDS.get(job.state)
    why = job.reason if job.reason not in ("", "None", "NonZeroExitCode") else ""
    told = ", ".join(filter(None, (meaning, why and f"reason {why}")))
    return f"{job.state}{nodes}" + (f" ({told})" if told else "")


def _reason(job: Job) -> str:
    if job.state == "CONFIGURING":
        return "its nodes are being made ready (CONFIGURING)"
    word = job.reason or "None"
    found = _REASONS.get(word) or next(
        (text for start, text in _PREFIXES.items() if word.startswith(start)), None
    )
    if found is None:
        return word
    return found if word == "None" else f"{found} ({word})"


def _moment(time: str) -> str:
    moment = datetime.datetime.fromisoformat(time)
    is_today = moment.date() == datetime.datetime.now(datetime.UTC).date()
    return f"{moment:%H:%M} UTC" if is_today else f"{moment:%Y-%m-%d %H:%M} UTC"
