"""The bottleneck of each arm of a study, for its report: a sentence each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from statistics import median_low
from typing import Any

from nbkit.errors import StoreError
from nbkit.review.causes import Cause, Diagnosis
from nbkit.review.diagnosis import diagnose, others_than
from nbkit.store.stored_runs import StoredRun

_BETWEEN_JOBS = ("other-processes", "no-cpu")
"""What jobs that are started together do to each other; each has its own GPUs."""


class ArmsBoundBy:
    """The diagnoses of every finished run of some arms.

    Parameters
    ----------
    runs_by_arm
        Finished runs by the name of their arm.
    at_once
        Arms that are started together, to disturb each other.
    rounds
        The runs of such arms that were started together: others disturb them, too.
    """

    def __init__(
        self,
        runs_by_arm: Mapping[str, Sequence[StoredRun]],
        at_once: Collection[str] = (),
        rounds: Iterable[Sequence[StoredRun]] = (),
    ) -> None:
        self._runs = runs_by_arm
        self._diagnoses = {
            arm: [diagnose(run) for run in runs] for arm, runs in runs_by_arm.items()
        }
        there = {run.paths.root for runs in runs_by_arm.values() for run in runs}
        by_others = {
            job.paths.root: others
            for jobs in rounds
            if there & {job.paths.root for job in jobs}
            and (others := _others_than(jobs))
            for job in jobs
        }
        self._by_others = {
            arm: [by_others.get(run.paths.root, []) for run in runs]
            for arm, runs in runs_by_arm.items()
        }
        self._by_arm = {
            arm: self._diagnoses[arm]
            if all(run.config.has_steps for run in runs)
            else []
            for arm, runs in runs_by_arm.items()
        }
        self._at_once = at_once

    def disturbed(self, without: Collection[str] = ()) -> dict[str, list[list[Cause]]]:
        """Return what disturbed arms: all causes of each disturbed run, by arm.

        An arm's number is the median over its runs, which holds as long as more than
        half of them were left alone.
        """
        found = {
            arm: [causes for causes in self._disturbances(arm, without) if causes]
            for arm in self._diagnoses
        }
        return {
            arm: runs
            for arm, runs in found.items()
            if runs and 2 * len(runs) >= len(self._diagnoses[arm])
        }

    @property
    def disturbed_runs(self) -> list[str]:
        """The ids of disturbed runs of arms whose median withstands them."""
        run_ids: list[str] = []
        for arm, runs in self._runs.items():
            pairs = zip(runs, self._disturbances(arm), strict=True)
            disturbed = [run.run_id for run, causes in pairs if causes]
            run_ids += disturbed if 2 * len(disturbed) < len(runs) else []
        return run_ids

    def _disturbances(
        self, arm: str, without: Collection[str] = ()
    ) -> list[list[Cause]]:
        passed = {*without, *(_BETWEEN_JOBS if arm in self._at_once else ())}
        return [
            [cause for cause in run.disturbances if cause.code not in passed] + others
            for run, others in zip(
                self._diagnoses[arm], self._by_others[arm], strict=True
            )
        ]

    def in_every_arm(self, code: str) -> bool:
        """Return whether a cause disturbed at least half of the runs of each arm."""
        return all(
            2 * sum(code in {cause.code for cause in run} for run in runs) >= len(runs)
            for runs in self._diagnoses.values()
        )

    def runs_of(self, arm: str) -> int:
        """Return how many runs of an arm there are."""
        return len(self._diagnoses[arm])

    def notes(self) -> list[str]:
        """Return the bottleneck of each undisturbed arm that has one."""
        notes: list[str] = []
        disturbed = self.disturbed()
        for arm, diagnoses in self._by_arm.items():
            counted = self._counted(arm)
            if not diagnoses or arm in disturbed or (first := _first(counted)) is None:
                continue
            code, diagnosis = first
            count = sum(bool(each) and each[0].code == code for each in counted)
            what = "runs" if len(counted) == len(diagnoses) else "undisturbed runs"
            runs = f"{count}/{len(counted)} {what}"
            cause = diagnosis[0]
            notes.append(
                f"Bottleneck ({arm}): {cause.kind.title} ({runs}). {cause.sentence}"
            )
        return notes

    def _counted(self, arm: str) -> Sequence[Diagnosis]:
        """Return the runs of an arm that nothing disturbed: they show what bounds it.

        Of arms that disturb each other on purpose, all runs.
        """
        found = self._by_arm[arm]
        if arm in self._at_once:
            return found
        return [one for one in found if not one.disturbances]

    def to_dict(self) -> Mapping[str, Sequence[dict[str, Any]]]:
        """Return every run's diagnosis by arm, as JSON values."""
        return {
            arm: [one.to_dict() for one in found] for arm, found in self._by_arm.items()
        }


def _others_than(jobs: Sequence[StoredRun]) -> list[Cause]:
    with suppress(StoreError):  # of one that is in no arm here, and damaged
        return others_than(jobs)
    return []


def _first(found: Sequence[Diagnosis]) -> tuple[str, Diagnosis] | None:
    """Return what most runs name first, and the median one of those that do.

    None where most name nothing.
    """
    codes = Counter(one[0].code if one else None for one in found)
    code, _ = codes.most_common(1)[0]
    if code is None:
        return None
    named = [one for one in found if one and one[0].code == code]
    middle = median_low([one[0].weight for one in named])
    return code, next(one for one in named if one[0].weight == middle)
