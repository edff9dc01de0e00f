"""Disturbed starts are repeated, by a rule that uses no rate.

What other processes did on the machine was recorded during each run. A run counts as
disturbed by the limits of `nbkit.review.diagnosis`, whatever it has measured and in
whichever arm, so that repeating it changes no ratio. If many starts were disturbed, the
machine is busy, and repeating them would not help.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbkit.errors import RunNotFoundError
from nbkit.launch.run import Run, attach
from nbkit.review.diagnosis import diagnose
from nbkit.statistics.quantities import rate
from nbkit.store.record import RunState
from nbkit.studies.order import Slot

MOST_REPEATED = 1 / 3
"""Of the starts of a study. A median over runs withstands fewer than half."""


def chosen(disturbed: Mapping[Slot, bool]) -> list[Slot]:
    """Return which starts are made once more, in the order of the mapping."""
    found = [slot for slot, was in disturbed.items() if was]
    return found if len(found) <= MOST_REPEATED * len(disturbed) else []


def to_repeat(
    finished: Mapping[Slot, Run],
    entries: Sequence[Mapping[str, Any]],
    left_out: Collection[str],
) -> list[Slot]:
    """Return the starts that were disturbed and have not been made once more."""
    alone = {slot: run for slot, run in finished.items() if slot.arm not in left_out}
    before = {one.slot for one in replaced(finished, entries)}
    was = {
        slot: slot in before
        or any(one.by_conditions for one in diagnose(run).disturbances)
        for slot, run in alone.items()
    }
    return [slot for slot in chosen(was) if slot not in before]


@dataclass(frozen=True)
class Replaced:
    """A start that was disturbed, and the one in its place."""

    slot: Slot
    run: Run
    by: Run

    @property
    def words(self) -> str:
        """What it had measured, and what is counted instead."""
        old, new = (one.summary.images_per_second for one in (self.run, self.by))
        return (
            f"{self.slot.arm}, repeat {self.slot.repeat + 1}: {rate(old)} images/s, "
            f"counted {rate(new)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return ids and rates as JSON values."""
        return {
            "arm": self.slot.arm,
            "repeat": self.slot.repeat,
            "run_id": self.run.run_id,
            "images_per_second": self.run.summary.images_per_second,
            "by": self.by.run_id,
        }


def replaced(
    finished: Mapping[Slot, Run], entries: Sequence[Mapping[str, Any]]
) -> list[Replaced]:
    """Return the disturbed runs that others of the same start have replaced."""
    again = {entry["run_id"] for entry in entries if entry.get("again")}
    found = []
    for entry in entries:
        slot = Slot(entry["arm"], entry["repeat"])
        by = finished.get(slot)
        if by is None or by.run_id not in again or by.run_id == entry["run_id"]:
            continue
        try:
            run = attach(entry["run_id"])
        except RunNotFoundError:
            continue
        if run.state is RunState.FINISHED:
            found.append(Replaced(slot, run, by))
    return found
