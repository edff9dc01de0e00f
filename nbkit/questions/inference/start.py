"""Before an inference study: weights, and what this device cannot do."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.launch.run import Run
from nbkit.launch.start import launch
from nbkit.questions.inference.planning import BASELINE, InferencePlan
from nbkit.reports.parts import Note
from nbkit.store.record import RunState
from nbkit.studies.progress import Progress
from nbkit.studies.quiet import wait_before
from nbkit.studies.starts import end_all

_MAY_FAIL = ("int8",)
"""Formats that not every model has on every device, which only trying tells."""


@dataclass(frozen=True)
class Ready:
    """What can be measured, with its weights; a notebook shows its notes."""

    arms: Mapping[str, ExperimentConfig]
    """Configuration by format, without those that are not available."""
    unavailable: Mapping[str, str]
    """Why a format is not available, by format."""
    control: str | None
    repeats: int
    facts: Mapping[str, Any]
    """What the report has to know beside the arms, as JSON values."""
    notes: tuple[str, ...]

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        note = Note(self.notes)
        return {"text/html": note.to_html(), "text/plain": note.to_text()}


def prepare(plan: InferencePlan, *, wait_for_quiet: float = 0.0) -> Ready:
    """Train the weights if there are none, and try what may not be available.

    Parameters
    ----------
    plan
        `nbkit.questions.inference.planning.plan`.
    wait_for_quiet
        Seconds to wait at most until this machine is quiet; see `Study.run`.

    Raises
    ------
    ConfigError
        If nothing is left to compare.
    RunFailedError
        If the training fails.
    RunStoppedError
        If a user stops a run.
    """
    doubtful = [arm for arm in plan.arms if arm in _MAY_FAIL]
    count = (plan.training is not None) + len(doubtful)
    arms, notes = dict(plan.arms), []
    unavailable: dict[str, str] = {}
    if count:
        wait_before(plan.arms.values(), wait_for_quiet)
    with contextlib.closing(Progress("inference", count)) as shown:
        if plan.training is not None:
            trained = _run(plan.training, "training of the weights", shown).wait()
            arms = {a: one.replace(weights=trained.run_id) for a, one in arms.items()}
            notes.append(f"Weights: run {trained.run_id}, {plan.training.steps} steps.")
        for arm in doubtful:
            once = {"batch_sizes": (1,), "batches": 1, "warmup_batches": 0}
            tried = arms[arm].inference.model_dump() | once
            config = arms[arm].replace(name=f"try {arm}", inference=tried)
            run = _run(config, f"{arm} once", shown)
            if run.state is RunState.STOPPED:
                run.wait()
            if run.state is not RunState.FINISHED:
                unavailable[arm] = str((run.cause or {}).get("message"))
                notes.append(f"{arm} is not available: {unavailable[arm]}")
                del arms[arm]
            else:
                notes.append(f"{arm} is available: it was tried once.")
    if len(arms) == 1:
        message = (
            f"precisions={','.join(plan.arms)}: {notes[-1]} This leaves only "
            f"{BASELINE}; add a format, such as bf16."
        )
        raise ConfigError(message)
    notes = notes or ["Nothing has to be trained or tried first."]
    return Ready(
        arms=arms,
        unavailable=unavailable,
        control=plan.control,
        repeats=plan.repeats,
        facts={
            "notes": [*plan.notes, *notes],
            "unavailable": unavailable,
            "accuracy_margin": plan.accuracy_margin,
            "chosen": dict(plan.chosen),
        },
        notes=tuple(notes),
    )


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
