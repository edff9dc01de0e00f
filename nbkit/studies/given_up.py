"""Arms of a study with a metric that are not started again."""

from __future__ import annotations

from collections.abc import Sequence

from nbkit.errors import DivergedError, NbkitError, NotEnoughDataError
from nbkit.launch.run import Run
from nbkit.store.progress import end_words
from nbkit.studies.order import Slot
from nbkit.studies.starts import has_diverged
from nbkit.studies.stored_study import StoredStudy
from nbkit.visible import visible

_MOST_FAILURES = 2
"""Of an arm of which no start has finished: it is not started any more."""
_MOST_LETTERS = 160


class GivenUp:
    """Arms that are not started again in one execution.

    Parameters
    ----------
    study
        The study that is executed.
    """

    def __init__(self, study: StoredStudy) -> None:
        self._study = study
        self._errors: dict[str, list[NbkitError]] = {}
        self._measured = {*study.values_by_arm}
        self._worse = study.discarded

    @property
    def arms(self) -> set[str]:
        """Arms that are not started again; all arms if none is left to compare."""
        return self._study.with_base(self._failed | self._worse)

    def without(self, starts: Sequence[Sequence[Slot]]) -> list[Sequence[Slot]]:
        """Return the starts of the other arms."""
        over = self.arms
        return [start for start in starts if start[0].arm not in over]

    @property
    def _failed(self) -> set[str]:
        return {
            arm
            for arm, errors in self._errors.items()
            if arm not in self._measured and len(errors) >= _MOST_FAILURES
        }

    def add(self, arm: str, error: NbkitError) -> None:
        """Add a failed start; raise its error if the study can have no result."""
        self._errors.setdefault(arm, []).append(error)
        study = self._study
        left = set(study.compared_arms) - self._failed
        if study.base not in left or len(left) < min(len(study.compared_arms), 2):
            raise error

    def check(self, arm: str, run: Run) -> None:
        """Add a finished start; without a finite metric, it counts as failed.

        Raises
        ------
        NotEnoughDataError
            If it has no metric, and no other start of its arm has one.
        """
        assert self._study.metric is not None
        try:
            if has_diverged(run):
                message = f"run {run.run_id} {end_words(run.state, run.cause or {})}"
                raise DivergedError(message)
            self._study.metric.value(run)
        except DivergedError as error:
            self.add(arm, error)
        except NotEnoughDataError as error:
            if arm not in self._measured:
                raise
            self.add(arm, error)
        else:
            self._measured.add(arm)
            self._worse = self._study.discarded

    def raise_for_arms(self) -> None:
        """Raise the failure of an arm without a finished start.

        Divergence (NaN/Inf) is a result, not a failure.
        """
        for arm, errors in self._errors.items():
            if arm not in self._measured and not isinstance(errors[-1], DivergedError):
                raise errors[-1]


def failures_in_words(arm: str, planned: int, n: int, causes: Sequence[str]) -> str:
    """Return ``new: n=4 of 5, 1 failed: out of memory``."""
    cause = causes[-1].partition("\n")[0][:_MOST_LETTERS]
    return visible(f"{arm}: n={n} of {planned}, {len(causes)} failed: {cause}")


def failed_starts(study: StoredStudy) -> list[str]:
    """Return a sentence for each arm with failed starts."""
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
