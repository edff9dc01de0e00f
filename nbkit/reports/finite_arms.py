"""Diverged arms (NaN/Inf) of a study, and the report if all diverged."""

from __future__ import annotations

from dataclasses import dataclass

from nbkit.reports.parts import Note, Table
from nbkit.reports.renderer import Report
from nbkit.review.usable_arms import earliest
from nbkit.store.nonfinite import NonFinite
from nbkit.studies.stored_study import StoredStudy


def diverged_arms(study: StoredStudy) -> dict[str, NonFinite]:
    """Return by arm the earliest NaN or Inf of its runs.

    Includes finished runs and runs that ``stop_on_nonfinite`` ended.
    """
    earliest_by_arm = {
        arm: earliest(run.nonfinite for run in runs)
        for arm, runs in study.runs_by_arm(diverged=True).items()
    }
    return {
        arm: divergence
        for arm, divergence in earliest_by_arm.items()
        if divergence is not None
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


@dataclass(frozen=True)
class BaselineLost:
    """Replaces each table with a note, so that a notebook reaches its report."""

    study: StoredStudy
    reason: str
    """What is unknown, and why."""

    @property
    def table(self) -> Note:
        """The headline: what happened, and what to change."""
        change = "Lower learning_rate or change the precision in a new study."
        return Note([f"{self.reason}. {change}"])

    # Of chexnet, precision and time_to_accuracy.
    curves = same = trainings = speed = published_table = table
    answer_table = layout = published_layouts = bounds = table
    seeds = settings = projected = published = table

    def report(self) -> Report:
        """Return the report: every run with its NaN or Inf."""
        return all_diverged_report(self.study)


def baseline_lost(study: StoredStudy) -> BaselineLost | None:
    """Return the replacement result if every run of the first arm diverged."""
    arms = (arm for arm in study.arms if arm not in study.unrepeated)
    baseline = study.control[0] if study.control else next(arms)
    if study.runs_by_arm().get(baseline):
        return None
    lost = diverged_arms(study).get(baseline)
    if lost is None or baseline in {slot.arm for slot in study.missing}:
        return None
    return BaselineLost(
        study, f"No comparison: every run of {baseline} diverged ({lost})"
    )
