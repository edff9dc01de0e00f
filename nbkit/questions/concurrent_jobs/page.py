"""Report of a study of concurrent jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

from nbkit.questions.concurrent_jobs import tables
from nbkit.questions.concurrent_jobs.chart import slowdown_chart
from nbkit.questions.concurrent_jobs.literature import published_rounds
from nbkit.questions.concurrent_jobs.rounds import Measured, measured
from nbkit.questions.concurrent_jobs.slowdown import (
    ConcurrentJob,
    ConcurrentJobs,
)
from nbkit.reports.arm_tables import held_together, ratio_text
from nbkit.reports.conditions import HOW_MEASURED, WELCH
from nbkit.reports.page import Evidence, page
from nbkit.reports.renderer import Figure, Note, Report, Source, Table
from nbkit.statistics import NoiseFloor, Ratio
from nbkit.studies.study import Study

_QUESTION = "Concurrent jobs: slowdown, fairness and aggregate throughput"
_JAIN = Source(
    "R. Jain, D. Chiu and W. Hawe, A quantitative measure of fairness and "
    "discrimination for resource allocation in shared computer systems, DEC-TR-301 "
    "(1984)",
    "https://arxiv.org/abs/cs/9809099",
)


@dataclass(frozen=True)
class ConcurrentResult:
    """Results of a study of concurrent jobs."""

    evidence: Evidence
    measured: Measured

    @property
    def concurrent(self) -> Sequence[ConcurrentJobs]:
        """Concurrent jobs, in the plan's order."""
        return self.measured.concurrent

    @property
    def table(self) -> Table:
        """The headline: each concurrent job compared with the same job alone."""
        control, is_cpu = self.measured.control, self.evidence.is_cpu
        notes = [
            control.sentence
            if control
            else "No A/A control: run-to-run noise is unknown.",
            *self._left_out,
            *held_together(self.measured.verdicts),
        ]
        if not is_cpu:
            notes.append(
                "A job may use different GPUs when it runs alone; all GPUs are assumed "
                "equally fast."
            )
        where = "CPU smoke test" if is_cpu else "GPUs"
        return tables.jobs_table(self.concurrent, where, notes)

    @cached_property
    def figure(self) -> Figure:
        """The answer as a picture."""
        jobs: dict[str, list[ConcurrentJob]] = {}
        for layout in self.concurrent:
            jobs.setdefault(layout.setting, []).extend(layout.jobs)
        title, is_cpu = "Slowdown under concurrency", self.evidence.is_cpu
        chart = slowdown_chart(jobs, published_rounds(), is_cpu=is_cpu, title=title)
        return Figure(title, chart)

    @property
    def answer(self) -> str:
        """The result: slowdown, fairness and total rate, then effects of settings."""
        jobs = [_layout_sentence(layout) for layout in self.concurrent]
        effects = [
            f"{effect.what.capitalize()}: {self._shown(effect.ratio)}"
            for effect in self.measured.effects
            if effect.is_concurrent
        ]
        return " ".join([*jobs, *effects])

    def _shown(self, ratio: Ratio) -> str:
        """Return a ratio in words, unless the control differs by as much."""
        floor = self.measured.control
        if floor is None or not floor.covers(ratio):
            return ratio.sentence
        return f"no difference beyond {_control(floor)}."

    def report(self) -> Report:
        """Return everything in one report."""
        published, effects = published_rounds(), self.measured.effects
        rows = [row for jobs in published for row in jobs.rows]
        return page(
            _QUESTION,
            self.evidence,
            self.answer,
            [
                *(Note(self._left_out), self.table),
                tables.totals_table(self.concurrent, self.measured.one_jobs),
                *([tables.settings_table(effects)] if effects else []),
                tables.rounds_table(self.concurrent, self.measured.places),
                tables.published_table(published),
                *(tables.published_jobs_table(published), self.figure),
            ],
            method=[
                *HOW_MEASURED,
                "Concurrent: jobs of a round start together; only steps during "
                "which all jobs are measured are included.",
            ],
            sources=[WELCH, _JAIN, *(Source(row.source, row.url) for row in rows)],
            numbers={
                **self.measured.to_dict(),
                "published": [asdict(jobs) for jobs in published],
            },
            controls=self.measured.controls,
            quantity="slowdown",
        )

    @property
    def _left_out(self) -> list[str]:
        return [
            f"Layout {layout.name}: {len(layout.rounds) - len(layout.counted)} of "
            f"{len(layout.rounds)} rounds omitted, because their jobs overlapped too "
            "briefly. Use more steps."
            for layout in self.concurrent
            if len(layout.counted) < len(layout.rounds)
        ]


def result(study: Study) -> ConcurrentResult:
    """Return the result of a study, read from the store.

    Raises
    ------
    NotEnoughDataError
        If the study has no finished run.
    """
    return ConcurrentResult(Evidence.of(study), measured(study))


def _layout_sentence(jobs: ConcurrentJobs) -> str:
    """Return what concurrent jobs show, in words."""
    if not all(job.is_valid and job.alone.is_valid for job in jobs.jobs):
        return f"Layout {jobs.name}: no comparison, because a job diverged (NaN/Inf)."
    slowdown, total = _slowdown_words(jobs), jobs.aggregate_efficiency
    if slowdown is None or total is None or jobs.fairness is None:
        return (
            f"Layout {jobs.name}: no result, because the jobs did not overlap long "
            "enough or were not measured alone."
        )
    floor = jobs.noise_floor
    aggregate = f"aggregate throughput {ratio_text(total, 'the jobs alone')}."
    if floor is not None and floor.covers(total):
        aggregate = f"aggregate throughput unchanged beyond {_control(floor)}."
    fairness = f"fairness {jobs.fairness.median:.4f}"
    return f"Layout {jobs.name}: {slowdown}, {fairness}; {aggregate}"


def _slowdown_words(jobs: ConcurrentJobs) -> str | None:
    """Return the slowdown, unless the control differs by as much; None without one."""
    ratios = [job.rate_ratio for job in jobs.jobs if job.rate_ratio is not None]
    floor = jobs.noise_floor
    if ratios and floor is not None and all(map(floor.covers, ratios)):
        return f"no slowdown beyond {_control(floor)}"
    slowdowns = [job.slowdown[0] for job in jobs.jobs if job.slowdown is not None]
    slowdown = tables.range_text(slowdowns, 2)
    return slowdown and f"slowdown {slowdown}x vs. the same job alone"


def _control(floor: NoiseFloor) -> str:
    return f"the A/A control ({floor.difference})"
