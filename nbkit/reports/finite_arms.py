"""Diverged arms (NaN/Inf) of a study, and the report if all diverged."""

from __future__ import annotations

from nbkit.reports.parts import Table
from nbkit.reports.renderer import Report
from nbkit.review.usable_arms import earliest
from nbkit.store.nonfinite import NonFinite
from nbkit.studies.stored_study import StoredStudy


def diverged_arms(study: StoredStudy) -> dict[str, NonFinite]:
    """Return by arm the earliest NaN or Inf of its runs.

    Includes finished runs and runs that ``stop_on_nonfinite`` ended.
    """
    return {
        arm: divergence
        for arm, runs in study.runs_by_arm(diverged=True).items()
        if (divergence := earliest(run.nonfinite for run in runs)) is not None
    }


def all_diverged_report(study: StoredStudy) -> Report:
    """Return the report of a study in which the baseline or all arms diverged.

    Nothing is left to compare.
    """
    runs = study.runs_by_arm(diverged=True)
    table = Table(
        "Runs",
        ["arm", "state", "not finite", "learning rate", "run"],
        [
            [
                arm,
                str(run.state),
                None if (divergence := run.nonfinite) is None else str(divergence),
                f"{run.config.learning_rate:g}",
                run.run_id,
            ]
            for arm, finished in runs.items()
            for run in finished
        ],
    )
    return Report(
        title=f"{study.name}: nothing to compare",
        answer="",
        tables=[table],
        result={"study_id": study.study_id},
        next_step="lower learning_rate or change the precision in a new study",
    )
