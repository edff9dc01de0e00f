"""Trainings of a chexnet study and their predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbkit.errors import NotEnoughDataError
from nbkit.launch.run import Run
from nbkit.plural import plural
from nbkit.reports.arm_rows import ArmRun, arm_run
from nbkit.store.predictions import LabelPredictions, read_predictions


@dataclass(frozen=True)
class Training:
    """One finished run."""

    name: str
    seed: int
    predictions: LabelPredictions
    """At its last evaluation."""
    epochs: Sequence[tuple[int, Mapping[str, float | None]]]
    """Every evaluation: the epochs before it, and the AUROC by label."""
    run: ArmRun


def training(arm: str, run: Run) -> Training:
    """Return a finished training."""
    predictions = read_predictions(run.paths.predictions)
    if not isinstance(predictions, LabelPredictions):
        message = (
            f"Run {run.run_id} has no predictions by label, which the report requires. "
            "Create a new study."
        )
        raise NotEnoughDataError(message)
    evaluations = run.metrics("evaluation")
    return Training(
        f"{arm}, seed {run.config.seed}",
        run.config.seed,
        predictions,
        [
            (evaluation["epoch"], evaluation.get("auroc") or {})
            for evaluation in evaluations
        ],
        arm_run(run),
    )


def check_same_images(trainings: Sequence[Training]) -> None:
    """Refuse trainings that were not evaluated with the same images."""
    first = trainings[0].predictions
    for training in trainings[1:]:
        other = training.predictions
        if list(other.files) != list(first.files) or other.labels != first.labels:
            message = (
                f"Trainings {training.name} and {trainings[0].name} were evaluated on "
                "different images or labels: the data changed. Create a new study."
            )
            raise NotEnoughDataError(message)


def check_planned_images(plan: Mapping[str, Any], training: Training) -> None:
    """Refuse a training that was evaluated with images that the plan does not know."""
    files = training.predictions.files
    known = [plan.get("patients") or None]
    known += [(plan.get("baseline") or {}).get("files")]
    for names in known:
        missing = 0 if names is None else len({*files}.difference(names))
        if missing:
            message = (
                f"Training {training.name}: the data changed, and the plan lacks "
                f"{missing} of {plural(len(files), 'evaluation image')}. Create a new "
                "study."
            )
            raise NotEnoughDataError(message)
