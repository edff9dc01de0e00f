"""Stored runs of concurrent jobs, alone and by round."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from nbkit import statistics
from nbkit.launch.run import Run
from nbkit.questions.concurrent_jobs.layouts import Planned
from nbkit.questions.concurrent_jobs.slowdown import (
    ConcurrentJob,
    ConcurrentJobs,
    Effect,
    IsolatedRuns,
    Round,
    overlap,
)
from nbkit.reports.finite_arms import diverged_arms
from nbkit.review.usable_arms import usable_arms
from nbkit.statistics import NoiseFloor, measured_steps
from nbkit.statistics.quantities import UNKNOWN
from nbkit.studies.study import Study


@dataclass(frozen=True)
class Measured:
    """What was measured of concurrent jobs and of jobs alone."""

    planned: Sequence[Planned]
    concurrent: Sequence[ConcurrentJobs]
    """Concurrent jobs, in the plan's order."""
    alone: Mapping[str, IsolatedRuns]
    """Jobs alone, by arm; one job on all devices among them."""
    control: NoiseFloor | None
    """Of the first job alone; None without one."""
    places: Mapping[str, str]
    """GPUs or CPUs by run id."""
    comparisons: int = 1
    """Number of verdicts that share the error rate."""

    def among(self, comparisons: int) -> Measured:
        """Return the result with verdicts corrected for this number of comparisons."""
        concurrent = [
            replace(
                layout,
                jobs=tuple(
                    replace(job, comparisons=comparisons) for job in layout.jobs
                ),
                comparisons=comparisons,
            )
            for layout in self.concurrent
        ]
        return replace(self, concurrent=concurrent, comparisons=comparisons)

    @property
    def verdicts(self) -> list[statistics.Ratio]:
        """On every job, on all together and on every setting."""
        ratios = [job.rate_ratio for setting in self.concurrent for job in setting.jobs]
        ratios += [setting.aggregate_efficiency for setting in self.concurrent]
        ratios += [
            setting.against_one_job(self.one_jobs[setting.name])
            for setting in self.concurrent
            if setting.name in self.one_jobs
        ]
        ratios += [effect.ratio for effect in self.effects]
        return [verdict for verdict in ratios if verdict is not None]

    @property
    def controls(self) -> list[NoiseFloor]:
        """The control, in a list; empty without one."""
        return [] if self.control is None else [self.control]

    @property
    def one_jobs(self) -> dict[str, IsolatedRuns]:
        """By name of concurrent jobs, one job on as many devices."""
        return {
            layout.name: self.alone[single.alone[0]]
            for layout in self.planned
            for single in self.planned
            if len(layout.sizes) > 1
            and single == replace(layout, sizes=(sum(layout.sizes),))
        }

    @cached_property
    def effects(self) -> list[Effect]:
        """Images/s with pinning, or storage of one's own, over images/s without."""
        at_once = {layout.name: layout for layout in self.concurrent}
        effects_by_key: dict[tuple[str, str], Effect] = {}
        for layout in self.planned:
            for what, other in _without(layout, self.planned):
                if layout.name in at_once:
                    total = at_once[layout.name].against(at_once[other.name])
                    if total is not None:
                        measured = f"{other.name} concurrent"
                        effects_by_key[layout.name, what] = Effect(
                            measured, what, total, True
                        )
                for arm, plain in zip(layout.alone, other.alone, strict=True):
                    ratio = self._ratio(self.alone[arm], self.alone[plain])
                    if ratio is not None:
                        effects_by_key[arm, what] = Effect(plain, what, ratio, False)
        return list(effects_by_key.values())

    def _ratio(
        self, runs: IsolatedRuns, other: IsolatedRuns
    ) -> statistics.Ratio | None:
        if not (runs.rates and other.rates and runs.is_valid and other.is_valid):
            return None
        return statistics.ratio(
            list(runs.rates.values()),
            list(other.rates.values()),
            a_name=runs.arm,
            b_name=other.arm,
            noise_floor=self.control,
            comparisons=self.comparisons,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "concurrent": [layout.to_dict() for layout in self.concurrent],
            "alone": {
                arm: list(runs.rates.values()) for arm, runs in self.alone.items()
            },
            "noise_floor": None if self.control is None else asdict(self.control),
            "effects": [asdict(effect) for effect in self.effects],
        }


def measured(study: Study) -> Measured:
    """Return what the finished runs of a study measured."""
    finished = {
        arm: {int(run.record["tags"]["repeat"]): run for run in runs}
        for arm, runs in study.runs_by_arm().items()
    }
    planned = [Planned.of(layout) for layout in study.plan["planned"]]
    names = dict.fromkeys(arm for layout in planned for arm in layout.alone)
    control_arms = tuple(study.control or ())
    # Slowdowns of every job are against jobs alone, of which the control is one.
    usable = usable_arms(finished, diverged_arms(study), control_arms)
    alone = {
        arm: replace(_alone(arm, finished[arm]), is_valid=arm in usable)
        for arm in names
    }
    control = _control(study, finished) if {*control_arms} <= {*usable} else None
    result = Measured(
        planned=planned,
        concurrent=[
            _concurrent(layout, finished, alone, control, usable)
            for layout in planned
            if len(layout.sizes) > 1
        ],
        alone=alone,
        control=control,
        places={
            run.run_id: _place(run)
            for finished_runs in finished.values()
            for run in finished_runs.values()
        },
    )
    return result.among(
        statistics.comparisons_at_once(lambda shared: result.among(shared).verdicts)
    )


Finished = Mapping[str, Mapping[int, Run]]
"""Runs by arm and repeat."""


def _alone(arm: str, runs: Mapping[int, Run]) -> IsolatedRuns:
    rates = {repeat: run.summary.images_per_second for repeat, run in runs.items()}
    return IsolatedRuns(arm, {repeat: rate for repeat, rate in rates.items() if rate})


def _control(study: Study, finished: Finished) -> NoiseFloor | None:
    if study.control is None:
        return None
    first, again = (_alone(arm, finished[arm]) for arm in study.control)
    if not first.rates or not again.rates:
        return None
    return statistics.noise_floor(
        list(first.rates.values()), list(again.rates.values()), name=first.arm
    )


def _concurrent(
    layout: Planned,
    finished: Finished,
    alone: Mapping[str, IsolatedRuns],
    control: NoiseFloor | None,
    usable: Collection[str],
) -> ConcurrentJobs:
    runs_of = [finished[arm] for arm in layout.jobs]
    # A study counts the runs of a round only if all of them have finished.
    repeats = sorted(set(runs_of[0]).intersection(*runs_of))
    rounds = tuple(
        _round(repeat, [runs[repeat] for runs in runs_of]) for repeat in repeats
    )
    counted = [round_.rates for round_ in rounds if round_.is_valid]
    return ConcurrentJobs(
        name=layout.name,
        setting=layout.setting.name,
        jobs=tuple(
            ConcurrentJob(
                arm=arm,
                world_size=size,
                alone=alone[base],
                rates=tuple(rates[place] for rates in counted),
                noise_floor=control,
                is_valid=arm in usable,
            )
            for place, (arm, size, base) in enumerate(
                zip(layout.jobs, layout.sizes, layout.alone, strict=True)
            )
        ),
        rounds=rounds,
        noise_floor=control,
    )


def _round(repeat: int, runs: Sequence[Run]) -> Round:
    steps = [measured_steps(run.metrics()) for run in runs]
    return Round(repeat, tuple(run.run_id for run in runs), overlap(steps))


def _place(run: Run) -> str:
    """Return on what a run was: its GPUs, or the CPUs its ranks could use."""
    worker = run.worker
    if worker.get("device_type") == "cuda":
        return ", ".join(run.record.get("launch", {}).get("devices") or []) or UNKNOWN
    cpus = [rank.get("cpus") or [] for rank in worker.get("ranks") or []]
    used = sorted(set[int]().union(*cpus))
    return f"CPU {','.join(map(str, used))}" if used else UNKNOWN


def _without(
    layout: Planned, layouts: Sequence[Planned]
) -> Iterator[tuple[str, Planned]]:
    """Yield the same jobs in each setting that lacks one thing, and what it lacks."""
    less = {
        "pinned vs. not pinned": replace(layout.setting, pinned=False),
        "separate vs. shared storage": replace(layout.setting, storage="shared"),
    }
    for what, setting in less.items():
        other = replace(layout, setting=setting)
        if other != layout and other in layouts:
            yield what, other
