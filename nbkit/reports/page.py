"""Report page of a question: the parts of all pages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from nbkit.launch.run import Run
from nbkit.reports.arms import finished_arms
from nbkit.reports.conditions import conditions, describe_images, where_and_when
from nbkit.reports.finite_arms import diverged_arms
from nbkit.reports.renderer import Figure, Note, Report, Source, Table
from nbkit.statistics import MINIMUM_RUNS, NoiseFloor
from nbkit.store.nonfinite import NonFinite
from nbkit.studies.parameters import next_command
from nbkit.studies.stored_study import StoredStudy


@dataclass(frozen=True)
class Evidence:
    """All stored data of a study, read once."""

    study: StoredStudy
    runs: Mapping[str, Sequence[Run]]
    """Finished runs by arm, without unrepeated ones."""
    lost: Mapping[str, NonFinite]
    conditions: Mapping[str, Any]
    plan: Mapping[str, Any]
    repeats: int
    is_cpu: bool

    @classmethod
    def of(cls, study: StoredStudy) -> Evidence:
        """Read a study."""
        runs = finished_arms(study)
        all_runs = [*chain(*runs.values())]
        facts = {**conditions(all_runs), "study_id": study.study_id}
        is_cpu = {run.summary.device_type for run in all_runs} == {"cpu"}
        plan, repeats = study.plan, study.repeats
        return cls(study, runs, diverged_arms(study), facts, plan, repeats, is_cpu)

    @property
    def control(self) -> str | None:
        """The name of the A/A control."""
        return self.study.control[1] if self.study.control else None


def page(
    question: str,
    evidence: Evidence,
    answer: str,
    parts: Iterable[Table | Note | Figure],
    *,
    method: Sequence[str],
    sources: Iterable[Source],
    numbers: Mapping[str, Any],
    controls: Sequence[NoiseFloor] = (),
    quantity: str = "images_per_second",
    answered_causes: Collection[str] = (),
    untimed: str = "",
    on_cpu: str = "CPU smoke test",
    trains: bool = True,
    next_step: str = "",
) -> Report:
    """Return the report of a question: its first table leads, its first figure, too."""
    parts = list(parts)
    notes = [part.sentences for part in parts if isinstance(part, Note)]
    prefix = f"{on_cpu}: " if evidence.is_cpu and on_cpu and answer else ""
    return Report(
        title=question,
        answer=f"{prefix}{answer}",
        untimed=untimed,
        notes=[*chain(*notes)],
        answered_causes=answered_causes,
        tables=[part for part in parts if isinstance(part, Table)],
        figures=[part for part in parts if isinstance(part, Figure)],
        method=[
            *method,
            *(describe_images(evidence.conditions) if trains else ()),
            where_and_when(evidence.conditions),
        ],
        sources=[*dict.fromkeys(sources)],
        result={
            "schema": 1,
            "quantity": quantity,
            "origin": "measured",
            "is_smoke_test": evidence.is_cpu,
            "conditions": dict(evidence.conditions),
            **numbers,
        },
        next_step=next_step or next_run(evidence),
        controls=controls,
    )


def next_run(evidence: Evidence, **changes: Any) -> str:
    """Return the command that measures it on GPUs with enough repeats."""
    chosen = {**evidence.plan.get("chosen", {}), **changes}
    if evidence.repeats < MINIMUM_RUNS:
        chosen["repeats"] = MINIMUM_RUNS
    kind = evidence.study.kind or ""
    return next_command(kind, chosen, is_cpu=evidence.is_cpu)
