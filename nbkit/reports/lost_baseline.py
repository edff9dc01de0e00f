"""What a notebook shows if no run of its baseline stayed finite."""

from __future__ import annotations

from dataclasses import dataclass

from nbkit.reports.finite_arms import all_diverged_report, not_finite
from nbkit.reports.parts import Note
from nbkit.reports.renderer import Report
from nbkit.studies.stored_study import StoredStudy


@dataclass(frozen=True)
class BaselineLost:
    """Says so in the place of each table, so that a notebook arrives at its report."""

    study: StoredStudy
    reason: str
    """What is unknown, and why."""

    @property
    def table(self) -> Note:
        """The headline: what happened, and what to change."""
        return Note(
            [
                f"{self.reason}. Lower learning_rate or change the precision in a new "
                "study."
            ]
        )

    # Of chexnet, precision and time_to_accuracy.
    curves = same = trainings = speed = published_table = table
    answer_table = layout = published_layouts = bounds = table
    seeds = settings = projected = published = table

    def report(self) -> Report:
        """Return every run with what was not finite."""
        return all_diverged_report(self.study)


def baseline_lost(study: StoredStudy) -> BaselineLost | None:
    """Return what to show if every run of the first arm was ended as not finite."""
    arms = (arm for arm in study.arms if arm not in study.unrepeated)
    baseline = study.control[0] if study.control else next(arms)
    if study.runs_by_arm().get(baseline):
        return None
    lost = not_finite(study).get(baseline)
    if lost is None or baseline in {slot.arm for slot in study.missing}:
        return None
    return BaselineLost(
        study, f"No comparison: every run of {baseline} diverged ({lost})"
    )
