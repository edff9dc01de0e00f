"""`Plan` of a question, and the values that its notes are derived from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nbkit.config import ExperimentConfig
from nbkit.reports.parts import Note
from nbkit.studies.budget import checked_minutes, default_minutes, limit_note
from nbkit.studies.devices import why_cpus
from nbkit.studies.parameters import Parameters
from nbkit.studies.stored_study import StoredStudy

_SHARE_OF_LIMIT = 0.2
"""Share of the time limit for measurements before a study."""


@dataclass(frozen=True, kw_only=True)
class PlanValues:
    """Values of a plan, before its study or as stored with it, for its notes.

    ``study.json`` has no sentences: a plan and the report of its study describe the
    same values.
    """

    arms: Mapping[str, ExperimentConfig]
    """Configuration of each arm, without control and unrepeated ones."""
    repeats: int
    control: str | None
    """The arm with an A/A control, if any."""
    unrepeated: Sequence[str]
    parameters: Mapping[str, Any]
    facts: Mapping[str, Any]
    """See `Plan.facts`."""

    @classmethod
    def of(cls, study: StoredStudy) -> PlanValues:
        """Return the values stored with a study."""
        arms = study.arms
        return cls(
            arms={arm: arms[arm] for arm in study.compared_arms},
            repeats=study.repeats,
            control=study.control and study.control[0],
            unrepeated=study.unrepeated,
            parameters=study.parameters,
            facts=study.plan,
        )

    @property
    def is_cpu(self) -> bool:
        """Whether CPU processes are used instead of GPUs."""
        return next(iter(self.arms.values())).device == "cpu"

    def smoke_test(self, text: str, label: str = "CPU smoke test") -> list[str]:
        """Return a note that explains a CPU smoke test; empty on GPUs."""
        engine = self.parameters.get("engine", "local")
        why = why_cpus(self.parameters["device"], engine)
        return [f"{label}: {why}. {text}"] if self.is_cpu else []


Describe: TypeAlias = Callable[[PlanValues], Iterable[str]]
"""Makes notes of a plan's values, the most important first."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What will be measured; a notebook shows its notes."""

    arms: Mapping[str, ExperimentConfig]
    """Configuration of each arm by name."""
    repeats: int
    """Number of process starts per arm."""
    parameters: Parameters
    describe: Describe = lambda plan: ()
    """Makes the notes, here and in the report."""
    control: str | None = None
    """The arm with an A/A control, if any."""
    unrepeated: Mapping[str, ExperimentConfig] = field(default_factory=dict)
    """Configurations that are run once, before the arms."""
    concurrent: Sequence[Sequence[str]] = ()
    """Groups of arms that are started together."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of all runs."""
    prepared: Mapping[str, Any] = field(default_factory=dict)
    """What the notes and the report require, such as results of measurements before
    the study, as JSON values."""
    first_arms: Sequence[str] = ()
    """The pair of arms to measure first; default: the first two arms."""

    def __post_init__(self) -> None:
        checked_minutes(self.parameters.get("minutes"))

    @property
    def minutes(self) -> float | None:
        """Time limit of the study; None without one."""
        if "minutes" not in self.parameters:
            return None  # a notebook of another package
        minutes = checked_minutes(self.parameters["minutes"])
        is_default = self.parameters["minutes"] is None
        return default_minutes(self.arms.values()) if is_default else minutes

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
        first = {"first_arms": list(self.first_arms)} if self.first_arms else {}
        return {"chosen": self.parameters.chosen, **first, **self.prepared}

    @property
    def notes(self) -> list[str]:
        """Notes for the reader, the most important first."""
        values = PlanValues(
            arms=self.arms,
            repeats=self.repeats,
            control=self.control,
            unrepeated=[*self.unrepeated],
            parameters=self.parameters,
            facts=self.facts,
        )
        return [*self.describe(values)]

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        note = Note([*self.notes, *limit_note(self.minutes)])
        return {"text/html": note.to_html(), "text/plain": note.to_text()}


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
