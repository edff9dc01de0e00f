"""What the chexnet notebook shows if every training on one device was not finite."""

from __future__ import annotations

from dataclasses import dataclass

from nbkit.study.finite import without_a_verdict
from nbkit.study.report import Report
from nbkit.study.report_parts import Note
from nbkit.study.stored_study import StoredStudy

__all__ = ["NothingTrained"]


@dataclass(frozen=True)
class NothingTrained:
    """Says so in the place of each table, so that a notebook arrives at its report."""

    study: StoredStudy
    lost: str
    """What was not finite first, and at which step."""

    @property
    def table(self) -> Note:
        """The headline: what happened, and what to change."""
        return Note(
            [
                f"No AUROC: no training on 1 device stayed finite ({self.lost}). Lower "
                "learning_rate, or use another precision, and make a new study."
            ]
        )

    @property
    def curves(self) -> Note:
        """The same: no network is of use."""
        return self.table

    same = trainings = speed = published_table = curves

    def report(self) -> Report:
        """Return every run with what was not finite."""
        return without_a_verdict(self.study)
