"""What the input pipeline notebook calls: plan, tuner, result, report."""

from __future__ import annotations

from dataclasses import replace

from nbkit.errors import NotEnoughDataError
from nbkit.launch.run import Run
from nbkit.questions.input_pipeline.page import PipelineResult
from nbkit.reports.arm_rows import ArmRun, arm_run
from nbkit.reports.arms import Arms, finished_arms
from nbkit.reports.conditions import conditions
from nbkit.reports.finite_arms import not_finite
from nbkit.reports.renderer import Report
from nbkit.statistics import comparisons_at_once
from nbkit.studies.study import Study


def result(study: Study) -> PipelineResult:
    """Return what a study says, from the store alone.

    Raises
    ------
    NotEnoughDataError
        If the baseline has no finished run, or a run no measured step.
    """
    runs = finished_arms(study)
    baseline, configs = study.plan["baseline"], study.arms
    if baseline not in runs:
        message = (
            f"baseline {baseline!r} of study {study.study_id} has 0 finished runs, 1 "
            "is needed; resume() the study."
        )
        raise NotEnoughDataError(message)
    largest = {
        arm: [_window_run(run) for run in many]
        for arm, many in runs.items()
        if configs[arm].world_size == configs[baseline].world_size
    }
    control = study.control[1] if study.control else None
    lost = not_finite(study)
    arms = Arms(largest, baseline, control, lost, study)
    if arms.row(baseline).images_per_second is None:
        message = (
            f"arm {baseline!r}, with which all others are compared, has a run of 0 "
            "measured steps; use more steps, or a smaller batch if the data are few."
        )
        raise NotEnoughDataError(message)
    facts = conditions([run for many in runs.values() for run in many])
    # It differs from arm to arm.
    facts.pop("loader", None)
    found = PipelineResult(
        arms=arms,
        configs=configs,
        runs=runs,
        plan=study.plan,
        repeats=study.repeats,
        conditions={**facts, "study_id": study.study_id},
        not_finite=lost,
    )
    return found.among(comparisons_at_once(lambda shared: found.among(shared).verdicts))


def report(study: Study) -> Report:
    """Return the report of a study of pipelines; `nbkit.report` calls and saves it.

    Raises
    ------
    NotEnoughDataError
        If the baseline has no finished run, or a run no measured step.
    """
    return result(study).report()


def _window_run(run: Run) -> ArmRun:
    """Return a run in numbers, its rate that of the whole window."""
    rate = run.summary.images_per_second
    return replace(arm_run(run), images_per_second=rate)
