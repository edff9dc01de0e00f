"""Tuner of loader, workers and prefetch by short runs."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, replace

from nbkit.config import ExperimentConfig
from nbkit.errors import NotEnoughDataError, RunFailedError
from nbkit.launch.start import launch
from nbkit.launch.submit import variables_set
from nbkit.questions.input_pipeline.planning import (
    PipelinePlan,
    with_setting,
    with_tuning,
)
from nbkit.questions.input_pipeline.tables import setting_words
from nbkit.questions.input_pipeline.trials import (
    Grid,
    LoaderSetting,
    Trial,
    Tuning,
    tune,
)
from nbkit.review.diagnosis import diagnose
from nbkit.studies.idle_machine import wait_before
from nbkit.studies.progress import Progress


def prepare(plan: PipelinePlan) -> PipelinePlan:
    """Run the trials of a plan, and return it with the tuned arm, if it has one.

    Raises
    ------
    NotEnoughDataError
        If a trial has no measured step.
    RunFailedError
        If every trial fails.
    """
    tuned = plan.tuned
    if tuned is None:
        return plan
    wait = wait_before([tuned], plan.wait_for_idle)
    tuning = tune_loading(
        tuned,
        plan.grid,
        plan.start,
        most_trials=plan.most_trials,
        most_seconds=plan.preparation_seconds,
        environment=plan.environment,
    )
    if wait is not None:
        prepared = {**plan.prepared, "wait_before_tuning": asdict(wait)}
        plan = replace(plan, prepared=prepared)
    return with_tuning(plan, tuning, tuned)


def tune_loading(
    config: ExperimentConfig,
    grid: Grid,
    start: LoaderSetting,
    *,
    most_trials: int | None = None,
    most_seconds: float = math.inf,
    environment: Mapping[str, str] | None = None,
    progress: bool = True,
) -> Tuning:
    """Tune the loader settings of a configuration with short runs.

    A setting whose run fails, such as for lack of shared memory, is not selected; its
    trial records the failure.
    """
    shown = Progress("tuner", most_trials or grid.most_trials, quiet=not progress)
    end = time.monotonic() + most_seconds
    tags = {"tuner": secrets.token_hex(4)}
    failed: list[RunFailedError] = []

    def measure(setting: LoaderSetting, why: str) -> Trial:
        shown.start(f"{setting_words(setting)} ({why})")
        with variables_set(environment or {}):
            named = config.replace(name=f"tuner {setting.loader}")
            run = launch(with_setting(named, setting), on_owner_exit="stop", tags=tags)
        try:
            run.wait(on_poll=shown.poll)
        except RunFailedError as error:
            failed.append(error)
            return Trial(setting, 0.0, run_id=run.run_id, cause=_cause(error))
        except BaseException:
            run.stop(by="interrupt")  # nothing else would end it while the kernel lives
            raise
        finally:
            shown.end(run)
        summary = run.summary
        if summary.images_per_second is None:
            message = (
                f"Run {run.run_id} has no measured steps. Use more steps than "
                f"warmup_steps={config.warmup_steps}."
            )
            raise NotEnoughDataError(message)
        return Trial(
            setting,
            images_per_second=summary.images_per_second,
            data_wait_share=summary.data_wait_share,
            cpu_ms_per_image=summary.cpu_ms_per_image,
            run_id=run.run_id,
            disturbed=next(
                (disturbance.evidence for disturbance in diagnose(run).disturbances),
                None,
            ),
        )

    try:
        tuning = tune(
            grid,
            start,
            measure,
            most_trials=most_trials,
            left_seconds=lambda: end - time.monotonic(),
        )
    finally:
        shown.close()
    if len(failed) == len(tuning.trials):
        raise failed[0]
    return tuning


def _cause(error: RunFailedError) -> str:
    """Return why a run failed, in one line."""
    lines = str(error.cause.get("message") or error).splitlines()
    return lines[0] if lines else "unknown"
