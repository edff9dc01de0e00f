"""What a question would measure, as it is planned now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.questions.chexnet import planning as chexnet_plan
from nbkit.questions.concurrent_jobs import planning as concurrent_plan
from nbkit.questions.inference import planning as inference_plan
from nbkit.questions.input_pipeline import planning as input_pipeline_plan
from nbkit.questions.machines import planning as machines_plan
from nbkit.questions.precision import planning as precision_plan
from nbkit.questions.scaling import planning as scaling_plan
from nbkit.questions.storage import planning as storage_plan
from nbkit.questions.time_to_accuracy import planning as time_to_accuracy_plan
from tests.golden.planted import Planted

__all__ = ["plan_of"]

_PLANS = {
    "chexnet": chexnet_plan,
    "concurrent_jobs": concurrent_plan,
    "inference": inference_plan,
    "input_pipeline": input_pipeline_plan,
    "machines": machines_plan,
    "precision": precision_plan,
    "scaling": scaling_plan,
    "storage": storage_plan,
    "time_to_accuracy": time_to_accuracy_plan,
}
_ONE = ("tuned", "training")
_COUNTS = ("repeats", "control", "together", "environment", "asked", "measured", "gpus")


def plan_of(
    here: Planted, question: str, chosen: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return the arms of a plan with what surrounds them, and its notes."""
    plan: Any = _PLANS[question].plan(here.parameters(question, chosen))
    planned: dict[str, Any] = {name: getattr(plan, name, None) for name in _COUNTS}
    for name in ("arms", "once"):
        every: Mapping[str, ExperimentConfig] = getattr(plan, name, None) or {}
        planned[name] = {arm: _fields(config) for arm, config in every.items()}
    for name in _ONE:
        config = getattr(plan, name, None)
        planned[name] = None if config is None else _fields(config)
    found = {name: value for name, value in planned.items() if value}
    whole = {"numbers": found, "words": list(plan.notes)}
    named = json.loads(here.back(json.dumps(whole)))
    return named["numbers"], named["words"]


def _fields(config: ExperimentConfig) -> dict[str, Any]:
    """Return what a configuration says other than its defaults."""
    return config.model_dump(mode="json", exclude_defaults=True)
