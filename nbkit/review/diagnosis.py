"""`diagnose`: what bounds a run, from its folder alone.

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
from nbkit.store.record import damage_told, read_json
from nbkit.store.stored_runs import StoredRun

_BATCH = "batch"
_BATCH_UNKNOWN = (
    "whether the batch is too small: something else disturbed the run, and what a "
    "step takes shows that, too."
)


def diagnose(run: StoredRun) -> Diagnosis:
    """Return what bounds a run, and the one change to try first for each cause.

    Examples
    --------
    >>> nbkit.runs()[0].diagnose()  # doctest: +SKIP
    """
    with damage_told(run.paths.root):
        profile = read_json(run.paths.operators)
        return diagnosis_of(facts_of(run), f"run {run.run_id}", profile)


def others_than(jobs: Sequence[StoredRun]) -> list[Cause]:
    """Return what others than jobs that ran together did to them, on their CPUs."""
    found = []
    for job in jobs:
        with damage_told(job.paths.root):
            found.append(facts_of(job))
    with damage_told(jobs[0].paths.root):
        return [*others_beside(found)]


def diagnosis_of(
    facts: Facts, subject: str, profile: dict[str, object] | None = None
) -> Diagnosis:
    """Return what facts say."""
    causes: list[Cause] = [*run_causes(facts), *gpu_causes(facts)]
    found = Diagnosis(subject, causes, list(_unknown(facts)), profile)
    if not found.disturbances:
        return found
    # An update that others interrupt takes longer, whatever the batch.
    kept = [cause for cause in causes if cause.code != _BATCH]
    unknown = [] if len(kept) == len(causes) else [_BATCH_UNKNOWN]
    return Diagnosis(subject, kept, [*unknown, *found.unknown], profile)


def _unknown(facts: Facts) -> Iterator[str]:
    """Yield what the files do not tell."""
    if not facts.ranks:
        yield (
            "where its time went: it has no measured step (functions and scripts have "
            "none, and a run that ends in its warm-up)."
        )
        return
    if not facts.all_ranks:
        yield (
            f"the times of {facts.world_size - 1} of {facts.world_size} ranks: they "
            "are written when the training ends, and until then, a slow rank cannot "
            "be distinguished from a slow exchange."
        )
    if facts.load is None:
        yield (
            "what else the host and its GPUs did: less than two seconds of its "
            "measured steps were sampled."
        )
    elif facts.on_gpus and not facts.load.gpus:
        yield "clocks and utilization of its GPUs: no counter was readable."
    if (facts.config.get("nnodes") or 1) > 1:
        yield "how full the CPUs were: this is known for runs on one node only."
