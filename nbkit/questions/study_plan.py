"""`Plan`: what a question measures, decided before anything starts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.reports.parts import Note
from nbkit.studies.budget import checked_minutes, default_minutes, limit_note
from nbkit.studies.devices import Devices, why_cpus
from nbkit.studies.parameters import Parameters

_SHARE_OF_LIMIT = 0.2
"""Of the time limit, for what is measured before a study."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What will be measured; a notebook shows its notes."""

    arms: Mapping[str, ExperimentConfig]
    """Configuration by the name of its arm."""
    repeats: int
    """Process starts of every arm."""
    notes: tuple[str, ...]
    """What a reader has to know first."""
    parameters: Parameters
    control: str | None = None
    """The arm that is measured a second time (A/A control), or none."""
    unrepeated: Mapping[str, ExperimentConfig] = field(default_factory=dict)
    """What is measured a single time, before the arms."""
    concurrent: Sequence[Sequence[str]] = ()
    """Arms that are started together, group by group."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that every run gets."""
    prepared: Mapping[str, Any] = field(default_factory=dict)
    """What was measured before the study, as JSON values."""
    first_arms: Sequence[str] = ()
    """The pair that is measured first; none: the first two arms."""

    def __post_init__(self) -> None:
        checked_minutes(self.parameters.get("minutes"))

    @property
    def minutes(self) -> float | None:
        """Time limit of the study; None without one."""
        if "minutes" not in self.parameters:
            return None  # a notebook of another package
        asked = checked_minutes(self.parameters["minutes"])
        is_default = self.parameters["minutes"] is None
        return default_minutes(self.arms.values()) if is_default else asked

    @property
    def preparation_seconds(self) -> float:
        """How long trials or reads before the study go on: arms are the question."""
        return _SHARE_OF_LIMIT * 60 * (self.minutes or math.inf)

    def minutes_after(self, seconds: float) -> float | None:
        """Return the limit that is left of so many seconds of preparation."""
        # That has waited for an idle machine, too, which does not count.
        if self.minutes is None or self.wait_for_idle:
            return self.minutes
        return max(round(self.minutes - seconds / 60, 1), 0.1)

    @property
    def wait_for_idle(self) -> float:
        """Seconds to wait at most until this machine is idle."""
        return self.parameters.get("wait_for_idle", 0.0)

    @property
    def facts(self) -> dict[str, Any]:
        """What the report must know of the plan beside the arms, as JSON values."""
        notes = {"notes": list(self.notes), "chosen": self.parameters.chosen}
        first = {"first_arms": list(self.first_arms)} if self.first_arms else {}
        return {**notes, **first, **self.prepared}

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        note = Note([*self.notes, *limit_note(self.minutes)])
        return {"text/html": note.to_html(), "text/plain": note.to_text()}


def smoke_test(parameters: Parameters, devices: Devices, text: str) -> list[str]:
    """Return why CPUs are used, and what that means; nothing on GPUs."""
    why = why_cpus(parameters.device, parameters.get("engine", "local"))
    return [f"CPU smoke test: {why}. {text}"] if devices.is_cpu else []


def below_one(parameters: Mapping[str, Any], *names: str) -> list[str]:
    """Return what is wrong with counts that are below 1."""
    return [
        f"{name}={value} is below 1. Use 1 or more."
        for name in names
        if (value := parameters[name]) is not None and value < 1
    ]


def images_in_words(config: ExperimentConfig) -> str:
    """Return what a run trains on, and the loader of what it reads."""
    if config.data == "synthetic":
        return "synthetic data"
    return f"images of {config.data} ({config.loader} loader)"
