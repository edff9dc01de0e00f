"""Starts of a study with a metric that need not come: their arm fails, or is worse."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from nbkit.errors import NbkitError, NotEnoughDataError
from nbkit.launch.run import Run
from nbkit.store.progress import end_words
from nbkit.visible import visible

if TYPE_CHECKING:
    from nbkit.studies.stored_study import StoredStudy

_MOST_FAILURES = 2
"""Of an arm of which no start has finished: it is not started any more."""
_MOST_LETTERS = 160


class GivenUp:
    """Arms that are not started any more in one execution.

    Parameters
    ----------
    study
        What is being executed.
    """

    def __init__(self, study: StoredStudy) -> None:
        self._study = study
        self._errors: dict[str, list[NbkitError]] = {}
        self._measured = {arm for arm, runs in study.runs_by_arm().items() if runs}
        self._base, *_ = study.control or compared_arms(study)
        self._worse = discarded_arms(study)

    @property
    def arms(self) -> set[str]:
        """Arms that are not started any more; all, if there is none to compare."""
        return _with_base(self._study, self._failed | self._worse)

    @property
    def _failed(self) -> set[str]:
        return {
            arm
            for arm, errors in self._errors.items()
            if arm not in self._measured and len(errors) >= _MOST_FAILURES
        }

    def add(self, arm: str, error: NbkitError) -> None:
        """Take a failed start; raise it if the study cannot answer any more."""
        self._errors.setdefault(arm, []).append(error)
        arms = compared_arms(self._study)
        left = set(arms) - self._failed
        if self._base not in left or len(left) < min(len(arms), 2):
            raise error

    def check(self, arm: str, run: Run) -> None:
        """Take a finished start; one without the metric counts as failed.

        Raises
        ------
        NotEnoughDataError
            If it has no metric, and no start of its arm had one.
        """
        assert self._study.metric is not None
        try:
            self._study.metric.value(run)
        except NotEnoughDataError as error:
            if arm not in self._measured:
                raise
            self.add(arm, error)
        else:
            self._measured.add(arm)
            self._worse = discarded_arms(self._study)

    def raise_for_arms(self) -> None:
        """Raise the failure of an arm of which no start has finished."""
        for arm, errors in self._errors.items():
            if arm not in self._measured:
                raise errors[-1]


def compared_arms(study: StoredStudy) -> list[str]:
    """Return the arms of a study without its control."""
    twins = study.control[1:] if study.control else ()
    return [arm for arm in study.arms if arm not in (*twins, *study.unrepeated)]


def _with_base(study: StoredStudy, arms: set[str]) -> set[str]:
    """Return the arms; all of the study if no other is left beside the base."""
    others = set(compared_arms(study)[1:])
    if study.control:
        others = {*compared_arms(study)} - {study.control[0]}
    return {*study.arms} if others and arms >= others else arms


def discarded_arms(study: StoredStudy) -> set[str]:
    """Return the arms that are worse than the base by many noise floors.

    All of the study if no other is left beside the base.
    """
    metric, arms = study.metric, compared_arms(study)
    if metric is None or metric.discard_floors is None:
        return set()
    base, *_ = study.control or arms
    values: dict[str, list[float]] = {}
    for arm, runs in study.runs_by_arm().items():
        for run in runs:
            with suppress(NotEnoughDataError):
                values.setdefault(arm, []).append(metric.value(run))
    worse = {
        arm
        for arm in arms
        if arm != base
        and metric.floors_worse(values.get(arm, ()), values.get(base, ())) is not None
    }
    return _with_base(study, worse)


def failures_in_words(arm: str, planned: int, n: int, causes: Sequence[str]) -> str:
    """Return ``new: n=4 of 5, 1 failed: out of memory``."""
    cause = causes[-1].partition("\n")[0][:_MOST_LETTERS]
    return visible(f"{arm}: n={n} of {planned}, {len(causes)} failed: {cause}")


def failed_starts(study: StoredStudy) -> list[str]:
    """Return what to say of each arm with failed starts."""
    done = study.runs_by_arm()
    return [
        failures_in_words(
            arm,
            study.repeats,
            len(done[arm]),
            [end_words(run.state, run.cause or {}) for run in runs],
        )
        for arm, runs in study.failed.items()
    ]
