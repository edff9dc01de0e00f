"""Preparation of an inference study: weights and formats."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.launch.run import Run
from nbkit.launch.start import launch
from nbkit.questions.inference.planning import BASELINE, InferencePlan
from nbkit.store.record import RunState
from nbkit.studies.idle_machine import wait_before
from nbkit.studies.progress import Progress
from nbkit.studies.starts import end_all

_MAY_FAIL = ("int8",)
"""Formats that not every model has on every device, which only trying tells."""


def prepare(plan: InferencePlan) -> InferencePlan:
    """Train the weights if needed, and try formats that may be unavailable.

    Raises
    ------
    ConfigError
        If no format is left to compare.
    RunFailedError
        If the training fails.
    RunStoppedError
        If a user stops a run.
    """
    doubtful = [arm for arm in plan.arms if arm in _MAY_FAIL]
    count = (plan.training is not None) + len(doubtful)
    arms, tried_arms = dict(plan.arms), list[str]()
    unavailable: dict[str, str] = {}
    if count:
        wait_before(plan.arms.values(), plan.wait_for_idle)
    with contextlib.closing(Progress("inference", count)) as shown:
        if plan.training is not None:
            trained = _run(plan.training, "training of the weights", shown).wait()
            arms = {
                a: config.replace(weights=trained.run_id) for a, config in arms.items()
            }
        for arm in doubtful:
            once = {"batch_sizes": (1,), "batches": 1, "warmup_batches": 0}
            tried = arms[arm].inference.model_dump() | once
            config = arms[arm].replace(name=f"try {arm}", inference=tried)
            run = _run(config, f"{arm} once", shown)
            if run.state is RunState.STOPPED:
                run.wait()
            if run.state is not RunState.FINISHED:
                unavailable[arm] = (run.cause or {}).get("message") or "unknown cause"
                del arms[arm]
            else:
                tried_arms.append(arm)
    if len(arms) == 1:
        arm, error = [*unavailable.items()][-1]
        message = (
            f"precisions={','.join(plan.arms)}: {arm} is not available: "
            f"{error.rstrip('.')}. Only {BASELINE} remains. Add a format, such as "
            f"{'bf16' if arms[BASELINE].device == 'cpu' else 'fp16'}."
        )
        raise ConfigError(message)
    prepared = {**plan.prepared, "unavailable": unavailable, "tried": tried_arms}
    return replace(plan, arms=arms, prepared=prepared)


def _run(config: ExperimentConfig, label: str, shown: Progress) -> Run:
    """Run to its end, whatever that is, and return it."""
    shown.start(label)
    run = launch(config, on_owner_exit="stop", tags={"for": "inference"})
    try:
        run.wait(raise_on_failure=False, on_poll=shown.poll)
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        end_all([run], by="interrupt" if interrupted else "study")
        raise
    finally:
        shown.end(run)
    return run
