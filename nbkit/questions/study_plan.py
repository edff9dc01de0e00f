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
"""Share of the time limit for measurements before a study."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What will be measured; a notebook shows its notes."""

    arms: Mapping[str, ExperimentConfig]
    """Configuration of each arm by name."""
    repeats: int
    """Number of process starts per arm."""
    notes: tuple[str, ...]
    """Notes for the reader, the most important first."""
    parameters: Parameters
    control: str | None = None
    """The arm with an A/A control, if any."""
    unrepeated: Mapping[str, ExperimentConfig] = field(default_factory=dict)
    """Configurations that are run once, before the arms."""
    concurrent: Sequence[Sequence[str]] = ()
    """Groups of arms that are started together."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of all runs."""
    prepared: Mapping[str, Any] = field(default_factory=dict)
    """Results of measurements before the study, as JSON values."""
    first_arms: Sequence[str] = ()
    """The pair of arms to measure first; default: the first two arms."""

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
        """Time limit of trials or reads before the study, in seconds."""
        return _SHARE_OF_LIMIT * 60 * (self.minutes or math.inf)

    def minutes_after(self, seconds: float) -> float | None:
        """Return the time limit that remains after a preparation."""
        # That has waited for an idle machine, too, which does not count.
        if self.minutes is None or self.wait_for_idle:
            return self.minutes
        return max(round(self.minutes - seconds / 60, 1), 0.1)

    @property
    def wait_for_idle(self) -> float:
        """Maximum time in seconds to wait for an idle machine."""
        return self.parameters.get("wait_for_idle", 0.0)

    @property
    def facts(self) -> dict[str, Any]:
        """Facts of the plan that the report requires, as JSON values."""
        notes = {"notes": list(self.notes), "chosen": self.parameters.chosen}
        first = {"first_arms": list(self.first_arms)} if self.first_arms else {}
        return {**notes, **first, **self.prepared}

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        note = Note([*self.notes, *limit_note(self.minutes)])
        return {"text/html": note.to_html(), "text/plain": note.to_text()}


def smoke_test(parameters: Parameters, devices: Devices, text: str) -> list[str]:
    """Return a note that explains a CPU smoke test; empty on GPUs."""
    why = why_cpus(parameters.device, parameters.get("engine", "local"))
    return [f"CPU smoke test: {why}. {text}"] if devices.is_cpu else []


def below_one(parameters: Mapping[str, Any], *names: str) -> list[str]:
    """Return an error for each count below 1."""
    return [
        f"{name}={value} is below 1. Use 1 or more."
        for name in names
        if (value := parameters[name]) is not None and value < 1
    ]


def images_in_words(config: ExperimentConfig) -> str:
    """Return the images of a run and their loader."""
    if config.data == "synthetic":
        return "synthetic data"
    return f"images of {config.data} ({config.loader} loader)"
