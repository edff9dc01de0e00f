"""Stored results of an inference study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from nbkit import statistics
from nbkit.errors import NotEnoughDataError
from nbkit.launch.run import Run
from nbkit.questions.inference.latency import judge_accuracy
from nbkit.questions.inference.page import InferenceResult
from nbkit.reports.arm_rows import ArmRun, arm_run
from nbkit.reports.arms import Arms, require_runs
from nbkit.reports.page import Evidence
from nbkit.review.energy import joules_between
from nbkit.statistics import ACCURACY_MARGIN, LatencyTiming
from nbkit.store.predictions import read_predictions
from nbkit.studies.study import Study


def result(study: Study) -> InferenceResult:
    """Return the result of a study, read from the store.

    Raises
    ------
    NotEnoughDataError
        If the baseline has no finished run, or a run no timed pass.
    """
    evidence = Evidence.of(study)
    finished = evidence.runs
    baseline, twin = study.control or (next(iter(finished)), None)
    timings = {arm: [_timings(run) for run in runs] for arm, runs in finished.items()}
    require_runs(study, baseline, finished)
    sizes = study.arms[baseline].inference.batch_sizes
    predictions = {
        arm: [read_predictions(run.paths.predictions) for run in starts]
        for arm, starts in finished.items()
    }
    measured = InferenceResult(
        evidence=evidence,
        by_batch_size={
            size: Arms(
                {
                    arm: [
                        at_batch_size(run, timing[size])
                        for run, timing in zip(starts, timings[arm], strict=True)
                    ]
                    for arm, starts in finished.items()
                },
                baseline,
                twin,
                evidence.lost,
            )
            for size in sizes
        },
        timings=timings,
        accuracies=judge_accuracy(
            predictions,
            {arm: _score(starts[0]) for arm, starts in finished.items()},
            baseline,
            margin=evidence.plan.get("accuracy_margin", ACCURACY_MARGIN),
            withheld=_why_untaught(finished[baseline][0].worker.get("weights") or {}),
        ),
        configs=study.arms,
        workers={arm: starts[0].worker for arm, starts in finished.items()},
    )
    return measured.among(
        statistics.comparisons_at_once(lambda shared: measured.among(shared).verdicts)
    )


def _timings(run: Run) -> dict[int, LatencyTiming]:
    timings = statistics.latency_timings(run.metrics("inference"))
    missing = set(run.config.inference.batch_sizes) - timings.keys()
    if missing:
        message = (
            f"Run {run.run_id} has no timed pass at batch size {min(missing)}. Remove "
            "the run, then call study.resume()."
        )
        raise NotEnoughDataError(message)
    return timings


def at_batch_size(run: Run, timing: LatencyTiming) -> ArmRun:
    """Return a run in numbers at one batch size."""
    joules = joules_between(run, timing.began, timing.ended)
    return replace(
        arm_run(run),
        images_per_second=timing.images_per_second,
        data_wait_share=None,
        peak_memory_bytes=timing.peak_memory_bytes,
        joules_per_image=None if joules is None else joules / timing.images,
    )


def _why_untaught(weights: Mapping[str, Any]) -> str | None:
    """Return why these weights answer by chance; None if they may have learnt."""
    if weights.get("source") == "random":
        return "the weights are random"
    if weights.get("new_output_layer"):
        return "the output layer is untrained"
    return None


def _score(run: Run) -> tuple[str, float] | None:
    summary = run.summary
    for name in ("top1_accuracy", "mean_auroc"):
        value = getattr(summary, name)
        if value is not None:
            return name, value
    return None
