"""`diagnose`: bottleneck of a run, from its folder alone.

It works on running, failed and imported runs as far as their files say, and says what
they do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nbkit.review.bottleneck_checks import run_causes
from nbkit.review.causes import Cause, Diagnosis
from nbkit.review.cpu_checks import others_beside
from nbkit.review.facts import Facts, facts_of
from nbkit.review.gpu_checks import gpu_causes
from nbkit.store.record import read_json, report_corruption
from nbkit.store.stored_runs import StoredRun

_BATCH = "batch"
_BATCH_UNKNOWN = "whether the batch is too small, because the run was disturbed."


def diagnose(run: StoredRun) -> Diagnosis:
    """Return the bottlenecks of a run, with the change to try first for each.

    Examples
    --------
    >>> nbkit.runs()[0].diagnose()  # doctest: +SKIP
    """
    with report_corruption(run.paths.root):
        profile = read_json(run.paths.operators)
        return diagnosis_of(facts_of(run), f"run {run.run_id}", profile)


def others_than(jobs: Sequence[StoredRun]) -> list[Cause]:
    """Return the CPU disturbances of concurrent jobs by other processes."""
    causes = []
    for job in jobs:
        with report_corruption(job.paths.root):
            causes.append(facts_of(job))
    with report_corruption(jobs[0].paths.root):
        return [*others_beside(causes)]


def diagnosis_of(
    facts: Facts, subject: str, profile: dict[str, object] | None = None
) -> Diagnosis:
    """Return what facts say."""
    causes: list[Cause] = [*run_causes(facts), *gpu_causes(facts)]
    diagnosis = Diagnosis(subject, causes, list(_unknown(facts)), profile)
    if not diagnosis.disturbances:
        return diagnosis
    # An update that others interrupt takes longer, whatever the batch.
    remaining = [cause for cause in causes if cause.code != _BATCH]
    unknown = [] if len(remaining) == len(causes) else [_BATCH_UNKNOWN]
    return Diagnosis(subject, remaining, [*unknown, *diagnosis.unknown], profile)


def _unknown(facts: Facts) -> Iterator[str]:
    """Yield what the files do not tell."""
    if not facts.ranks:
        yield (
            "step times: the run has no measured steps (functions and scripts have "
            "none)."
        )
        return
    if not facts.all_ranks:
        yield (
            f"the times of {facts.world_size - 1} of {facts.world_size} ranks, which "
            "are written at the end of training; until then, a slow rank cannot be "
            "distinguished from slow all-reduce."
        )
    if facts.load is None:
        yield (
            "other load on host and GPUs: less than two seconds of measured steps "
            "were sampled."
        )
    elif facts.on_gpus and not facts.load.gpus:
        yield "GPU clocks and utilization: no counter could be read."
    if (facts.config.get("nnodes") or 1) > 1:
        yield "CPU utilization: only known for runs on one node."
