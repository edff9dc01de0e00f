"""What the input pipeline notebook calls: plan, tuner, result, report."""

from __future__ import annotations

from nbkit.errors import NotEnoughDataError
from nbkit.questions.input_pipeline.page import PipelineResult
from nbkit.reports.arm_rows import arm_run
from nbkit.reports.arms import Arms
from nbkit.reports.page import Evidence
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
    evidence, configs = Evidence.of(study), study.arms
    runs, baseline = evidence.runs, evidence.plan["baseline"]
    if baseline not in runs:
        message = (
            f"baseline {baseline!r} of study {study.study_id} has no finished run. "
            "Resume the study with resume()."
        )
        raise NotEnoughDataError(message)
    largest = {
        arm: [arm_run(run) for run in many]
        for arm, many in runs.items()
        if configs[arm].world_size == configs[baseline].world_size
    }
    arms = Arms(largest, baseline, evidence.control, evidence.lost, study)
    if arms.row(baseline).images_per_second is None:
        message = (
            f"baseline {baseline!r} has a run without measured steps. Use more steps, "
            "or a smaller batch if the data are few."
        )
        raise NotEnoughDataError(message)
    facts = dict(evidence.conditions)
    # It differs from arm to arm.
    facts.pop("loader", None)
    found = PipelineResult(
        arms=arms,
        configs=configs,
        runs=runs,
        plan=evidence.plan,
        repeats=evidence.repeats,
        conditions=facts,
        not_finite=evidence.lost,
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
