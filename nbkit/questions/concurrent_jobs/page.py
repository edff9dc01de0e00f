"""What the notebook of concurrent jobs shows: slowdown, fairness, total, settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

from nbkit.questions.concurrent_jobs import tables
from nbkit.questions.concurrent_jobs.chart import slowdown_chart
from nbkit.questions.concurrent_jobs.literature import published_rounds
from nbkit.questions.concurrent_jobs.rounds import Measured, measured
from nbkit.questions.concurrent_jobs.slowdown import Effect, Job, Together
from nbkit.reports.arm_tables import held_together
from nbkit.reports.conditions import (
    WELCH,
    conditions,
    describe_images,
    how_measured,
    where_and_when,
)
from nbkit.reports.doubts import lead_of
from nbkit.reports.parts import Lead
from nbkit.reports.renderer import Figure, Note, Report, Source, Table
from nbkit.statistics import MINIMUM_RUNS, NoiseFloor, Ratio
from nbkit.statistics import quantities as wording
from nbkit.studies.parameters import SIZES_OF_A_CPU, papermill_command
from nbkit.studies.study import Study

_QUESTION = "Does each job keep its speed when several train concurrently?"
_JAIN = Source(
    "R. Jain, D. Chiu and W. Hawe, A quantitative measure of fairness, DEC-TR-301 "
    "(1984)",
    "https://arxiv.org/abs/cs/9809099",
)


@dataclass(frozen=True)
class ConcurrentResult:
    """What a study says about concurrent jobs."""

    measured: Measured
    notes: Sequence[str]
    chosen: Mapping[str, Any]
    """Parameters that the user set."""
    repeats: int
    is_cpu: bool
    conditions: Mapping[str, Any]
    """What fixes the meaning of the numbers."""
    lead: Lead | None = None
    """What takes the answer back, above the headline."""

    @property
    def device_type(self) -> Literal["cuda", "cpu"]:
        """On what the runs computed."""
        return "cpu" if self.is_cpu else "cuda"

    @property
    def together(self) -> Sequence[Together]:
        """Concurrent jobs, in the plan's order."""
        return self.measured.together

    @property
    def table(self) -> Table:
        """The headline: each job among others against the same job alone."""
        where = "on CPU slots (functional)" if self.is_cpu else "on GPUs"
        own = [self._control_sentence, *self._left_out]
        own += held_together(self.measured.verdicts)
        if not self.is_cpu:
            own.append(
                "Jobs after the first run on other GPUs than the job alone, which are "
                "assumed to be equally fast."
            )
        made = tables.jobs_table(self.together, where, own)
        return replace(made, lead=self.lead)

    @property
    def totals(self) -> Table:
        """All jobs together against the sum of them alone, and against one job."""
        return tables.totals_table(self.together, self.measured.one_jobs)

    @property
    def settings(self) -> Table | Note:
        """What pinning and storage of one's own give, or that nothing was varied."""
        if not self.effects:
            return Note(["One setting was measured: pinned=false,true compares two."])
        return tables.settings_table(self.effects)

    @property
    def rounds(self) -> Table:
        """Every round with its overlap, its devices and its runs."""
        return tables.rounds_table(self.together, self.measured.places)

    @property
    def published(self) -> Table:
        """Published results of concurrent jobs, recomputed."""
        return tables.published_table(published_rounds())

    @property
    def published_jobs(self) -> Table:
        """The jobs that others have published, one by one."""
        return tables.published_jobs_table(published_rounds())

    @cached_property
    def figure(self) -> Figure:
        """The answer as a picture."""
        jobs: dict[str, list[Job]] = {}
        for one in self.together:
            jobs.setdefault(one.setting, []).extend(one.jobs)
        title = "How much slower is a job among others?"
        return Figure(
            title,
            slowdown_chart(
                jobs, published_rounds(), device_type=self.device_type, title=title
            ),
        )

    @cached_property
    def effects(self) -> list[Effect]:
        """Images/s with pinning, or storage of one's own, over images/s without."""
        return self.measured.effects

    @property
    def answer(self) -> str:
        """What the data say: slowdown, fairness and total, then what pinning gives."""
        jobs = [_said(one) for one in self.together]
        effects = [
            f"{effect.what.capitalize()}: {self._shown(effect.ratio)}"
            for effect in self.effects
            if effect.is_together
        ]
        text = " ".join(wording.one_sentence(each) for each in (jobs, effects) if each)
        return f"CPU, functional: {text}" if self.is_cpu else text

    def _shown(self, ratio: Ratio) -> str:
        """Return a ratio in words, unless the control differs by as much."""
        floor = self.measured.control
        if floor is None or not floor.covers(ratio):
            return ratio.sentence
        return f"no difference beyond {_twice(floor)}."

    def report(self) -> Report:
        """Return everything in one report."""
        parts = (
            *(self.table, self.totals, self.settings, self.rounds),
            *(self.published, self.published_jobs),
        )
        more = [
            sentence
            for part in parts
            if isinstance(part, Note)
            for sentence in part.sentences
        ]
        return Report(
            title=_QUESTION,
            answer=self.answer,
            notes=[*self.notes, *self._left_out, *more],
            tables=[part for part in parts if isinstance(part, Table)],
            figures=[self.figure],
            method=[
                *how_measured(self.repeats),
                "Concurrently: jobs of a round are started together, and only steps "
                "during which every one of them was measured count.",
                *describe_images(self.conditions),
                where_and_when(self.conditions),
            ],
            sources=[WELCH, _JAIN, *_sources()],
            result={
                "schema": 1,
                "quantity": "slowdown",
                "origin": "measured",
                "functional_only": self.is_cpu,
                "conditions": dict(self.conditions),
                **self.measured.to_dict(),
                "published": [asdict(one) for one in published_rounds()],
            },
            next_step=self._next_step,
            controls=self.measured.controls,
        )

    @property
    def _control_sentence(self) -> str:
        if self.measured.control is not None:
            return self.measured.control.sentence
        return (
            "No control: no job alone was measured twice, so these runs do not say how "
            "large a difference chance alone makes."
        )

    @property
    def _left_out(self) -> list[str]:
        return [
            f"{one.name}: {len(one.rounds) - len(one.counted)} of {len(one.rounds)} "
            "rounds are omitted, because their jobs were measured concurrently for "
            "too short a time; use more steps."
            for one in self.together
            if len(one.counted) < len(one.rounds)
        ]

    @property
    def _next_step(self) -> str:
        chosen = dict(self.chosen)
        if self.is_cpu:
            chosen = {n: v for n, v in chosen.items() if n not in SIZES_OF_A_CPU}
        if self.repeats < MINIMUM_RUNS:
            chosen["repeats"] = MINIMUM_RUNS
        command = papermill_command("concurrent_jobs", chosen)
        return f"on a machine with GPUs: {command}" if self.is_cpu else command


def result(study: Study) -> ConcurrentResult:
    """Return what a study says, from the store alone.

    Raises
    ------
    NotEnoughDataError
        If the study has no finished run.
    """
    runs = [run for many in study.runs_by_arm().values() for run in many]
    facts = {**conditions(runs), "study_id": study.study_id}
    found = measured(study)
    return ConcurrentResult(
        measured=found,
        notes=study.plan["notes"],
        chosen=study.plan["chosen"],
        repeats=study.repeats,
        is_cpu={run.summary.device_type for run in runs} == {"cpu"},
        conditions=facts,
        lead=partial(lead_of, study, found.controls),
    )


def report(study: Study) -> Report:
    """Return the report of a study of concurrent jobs; `nbkit.report` saves it.

    Raises
    ------
    NotEnoughDataError
        If the study has no finished run.
    """
    return result(study).report()


def _said(one: Together) -> str:
    """Return what concurrent jobs show, in words."""
    if not all(job.counts and job.alone.counts for job in one.jobs):
        return f"{one.name} concurrently: no comparison, because a job is not finite."
    slowdown, total = _slowdown_words(one), one.total_kept
    if slowdown is None or total is None or one.fairness is None:
        return (
            f"{one.name} concurrently: no result, because the jobs did not overlap "
            "long enough, or were not measured alone."
        )
    floor, together = one.noise_floor, total.sentence
    if floor is not None and floor.covers(total):
        together = f"no difference of the total beyond {_twice(floor)}."
    return (
        f"{one.name} concurrently: {slowdown}, fairness {one.fairness.median:.4f}; "
        f"{together}"
    )


def _slowdown_words(one: Together) -> str | None:
    """Return the slowdown, unless the control differs by as much; None without one."""
    kept = [job.kept for job in one.jobs if job.kept is not None]
    floor = one.noise_floor
    if kept and floor is not None and all(map(floor.covers, kept)):
        return f"no slowdown beyond {_twice(floor)}"
    slowdown = tables.slowdown_text(one.jobs)
    if slowdown is None:
        return None
    return f"slowdown {slowdown} against the same job alone"


def _twice(floor: NoiseFloor) -> str:
    return f"what a job alone twice differed by ({floor.difference})"


def _sources() -> list[Source]:
    """Return where the published numbers of tables and chart are printed."""
    rows = [row for one in published_rounds() for row in one.rows]
    return [
        Source(text, url) for text, url in {row.source: row.url for row in rows}.items()
    ]
