"""What a question would measure, as it is planned now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from nbkit import registry
from nbkit.config import ExperimentConfig
from tests.golden.planted import Planted

__all__ = ["plan_of"]

_ONE = ("tuned", "training")
_COUNTS = ("repeats", "control", "concurrent", "environment", "gpus")
_FACTS = ("requested", "measured")


def plan_of(
    here: Planted, question: str, chosen: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return the arms of a plan with what surrounds them, and its notes."""
    parameters = here.parameters(question, chosen)
    plan: Any = registry.resolve("questions", question).plan(parameters)
    planned: dict[str, Any] = {name: getattr(plan, name, None) for name in _COUNTS}
    planned |= {name: plan.facts.get(name) for name in _FACTS}
    for name in ("arms", "unrepeated"):
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
