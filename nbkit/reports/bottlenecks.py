"""Bottleneck of each arm of a study, for its report: a row each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from statistics import median_low
from typing import Any, NamedTuple

from nbkit.errors import StoreError
from nbkit.plural import plural
from nbkit.reports.columns import Column, table
from nbkit.reports.parts import Table
from nbkit.review.causes import Cause, Diagnosis
from nbkit.review.diagnosis import diagnose, others_than
from nbkit.store.stored_runs import StoredRun

_BETWEEN_JOBS = ("other-cpu-processes", "no-cpu")
"""Causes by which concurrent jobs disturb each other; GPUs are separate."""


class ArmBottleneck(NamedTuple):
    """The first bottleneck of most undisturbed runs of an arm."""

    arm: str
    cause: Cause
    """The cause in the median run of those that have it."""
    runs: str


class ArmBottlenecks:
    """The diagnoses of all finished runs of some arms."""

    def __init__(
        self,
        runs_by_arm: Mapping[str, Sequence[StoredRun]],
        concurrent_arms: Collection[str] = (),
        rounds: Iterable[Sequence[StoredRun]] = (),
    ) -> None:
        self._runs = runs_by_arm
        self._diagnoses = {
            arm: [diagnose(run) for run in runs] for arm, runs in runs_by_arm.items()
        }
        there = {run.paths.root for runs in runs_by_arm.values() for run in runs}
        by_others = {
            job.paths.root: causes
            for jobs in rounds
            if there & {job.paths.root for job in jobs}
            and (causes := _others_than(jobs))
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
        self._concurrent_arms = concurrent_arms

    def disturbed(self, without: Collection[str] = ()) -> dict[str, list[list[Cause]]]:
        """Return the disturbances by arm: all causes of each disturbed run.

        An arm's value is the median over its runs, which is valid if more than half of
        them were undisturbed.
        """
        disturbed = {
            arm: [causes for causes in self._disturbances(arm, without) if causes]
            for arm in self._diagnoses
        }
        return {
            arm: runs
            for arm, runs in disturbed.items()
            if runs and 2 * len(runs) >= len(self._diagnoses[arm])
        }

    @property
    def disturbed_runs(self) -> list[str]:
        """The ids of disturbed runs in arms whose median is still valid."""
        run_ids: list[str] = []
        for arm, runs in self._runs.items():
            pairs = zip(runs, self._disturbances(arm), strict=True)
            disturbed = [run.run_id for run, causes in pairs if causes]
            run_ids += disturbed if 2 * len(disturbed) < len(runs) else []
        return run_ids

    def _disturbances(
        self, arm: str, without: Collection[str] = ()
    ) -> list[list[Cause]]:
        passed = {*without, *(_BETWEEN_JOBS if arm in self._concurrent_arms else ())}
        return [
            [cause for cause in run.disturbances if cause.code not in passed] + causes
            for run, causes in zip(
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
        """Return the number of runs of an arm."""
        return len(self._diagnoses[arm])

    def bottlenecks(self) -> list[ArmBottleneck]:
        """Return the bottleneck of each undisturbed arm that has one.

        Disturbed runs are omitted, except for concurrent arms.
        """
        rows: list[ArmBottleneck] = []
        disturbed = self.disturbed()
        for arm, diagnoses in self._by_arm.items():
            counted = [
                diagnosis
                for diagnosis in diagnoses
                if arm in self._concurrent_arms or not diagnosis.disturbances
            ]
            if arm in disturbed or (cause := _first_cause(counted)) is None:
                continue
            count = sum(
                bool(causes) and causes[0].code == cause.code for causes in counted
            )
            undisturbed = " undisturbed" * (len(counted) < len(diagnoses))
            runs = f"{count} of {len(counted)}{undisturbed}"
            rows.append(ArmBottleneck(arm, cause, runs))
        return rows

    def table(self, answered: Collection[str] = ()) -> Table | None:
        """Return the bottlenecks with evidence and fix; None if there are none.

        The study measures the effect of the `answered` causes itself: no fix is shown.
        """
        rows = self.bottlenecks()

        def advice(row: ArmBottleneck) -> Cause | None:
            return None if row.cause.code in answered else row.cause

        columns = (
            Column("arm", "arm"),
            Column("bottleneck", "cause.kind.title"),
            Column("share of time", "cause.share", "{:.0%}".format),
            Column("runs", "runs"),
            Column("evidence", "cause.evidence"),
            Column("try", advice, lambda cause: cause.action),
            Column(
                *("expected speedup", advice),
                lambda cause: None if cause.gain is None else str(cause.gain),
            ),
        )
        return table("Bottlenecks", columns, rows) if rows else None

    def summary(self, answered: Collection[str] = ()) -> list[str]:
        """Return a sentence on bottlenecks whose effect the study does not measure."""
        arms: dict[str, list[str]] = {}
        for arm, cause, _ in self.bottlenecks():
            if cause.code not in answered:
                arms.setdefault(cause.kind.title, []).append(arm)
        parts = [
            f"{title} ({names[0] if len(names) == 1 else plural(len(names), 'arm')})"
            for title, names in arms.items()
        ]
        return [f"Bottlenecks: {'; '.join(parts)}."] if parts else []

    def to_dict(self) -> Mapping[str, Sequence[dict[str, Any]]]:
        """Return every run's diagnosis by arm, as JSON values."""
        return {
            arm: [diagnosis.to_dict() for diagnosis in diagnoses]
            for arm, diagnoses in self._by_arm.items()
        }


def _others_than(jobs: Sequence[StoredRun]) -> list[Cause]:
    with suppress(StoreError):  # of one that is in no arm here, and damaged
        return others_than(jobs)
    return []


def _first_cause(diagnoses: Sequence[Diagnosis]) -> Cause | None:
    """Return what most runs name first, of the median run; None if that is nothing."""
    firsts = [diagnosis[0] if diagnosis else None for diagnosis in diagnoses]
    codes = Counter(cause and cause.code for cause in firsts)
    code = codes.most_common(1)[0][0] if codes else None
    named = [cause for cause in firsts if cause and cause.code == code]
    if not named:
        return None
    middle = median_low([cause.weight for cause in named])
    return next(cause for cause in named if cause.weight == middle)
