"""Report of a scaling study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from nbkit.errors import NotEnoughDataError
from nbkit.launch.run import Run
from nbkit.questions.scaling.chart import scaling_chart
from nbkit.questions.scaling.nodes import (
    NodeTimes,
    ranks_result,
    ranks_table,
    straggler_sentences,
    times_of,
)
from nbkit.questions.scaling.projection import HELD_OUT, Outlook, project
from nbkit.questions.scaling.tables import (
    certainty_table,
    headline_table,
    published_cells,
    result_numbers,
)
from nbkit.questions.scaling.throughput import (
    MeasuredRun,
    ScalingRow,
    compare_arms,
    computed_sentence,
    points,
    scaling_table,
)
from nbkit.references.measured import reference_sentence
from nbkit.references.rows import PublishedRow, curves
from nbkit.reports.bandwidth import NCCL_TESTS, Bandwidth, bandwidth
from nbkit.reports.charts import PUBLISHED_COLOURS
from nbkit.reports.conditions import HOW_MEASURED, WELCH
from nbkit.reports.page import Evidence, page
from nbkit.reports.renderer import Figure, Note, Report, Source, Table
from nbkit.statistics import quantities as wording
from nbkit.statistics.quantities import device_label
from nbkit.store.nonfinite import NonFinite
from nbkit.studies.devices import sweep_sizes
from nbkit.studies.parameters import SIZES_OF_A_CPU, papermill_command
from nbkit.studies.study import Study

_CONTEXT_MODEL, _CONTEXT_GPU = "resnet50", "V100-SXM2-32GB"

_QUESTION = "Scaling: training throughput by number of GPUs"
_FURTHER = (2, 4)  # times the nodes that were measured

_RING = Source(
    "P. Patarasu and X. Yuan, Bandwidth optimal all-reduce algorithms (2009)",
    "https://doi.org/10.1016/j.jpdc.2008.09.002",
)


@dataclass(frozen=True)
class ScalingResult:
    """What measured runs say about scaling."""

    evidence: Evidence
    runs: Sequence[MeasuredRun]
    bandwidth: Bandwidth
    """All-reduce bandwidth at the largest size."""
    times: Sequence[NodeTimes] = ()
    """Times of the same runs by rank, if known."""
    diverged: Mapping[str, NonFinite] = field(default_factory=dict)
    """First NaN or Inf of a run, by precision."""

    @property
    def plan(self) -> Mapping[str, Any]:
        """What was asked for and measured."""
        return self.evidence.plan

    @cached_property
    def rows(self) -> list[ScalingRow]:
        """One row for each precision and size."""
        return scaling_table(self.runs, self.diverged)

    @cached_property
    def counted(self) -> list[ScalingRow]:
        """Rows of the answer: those whose trainings were all finite."""
        return [row for row in self.rows if row.is_valid]

    @cached_property
    def outlooks(self) -> dict[str, Outlook]:
        """Projections to the requested sizes, by precision.

        After runs on several nodes, also to more nodes.
        """
        targets = {
            size
            for size in sweep_sizes(self.plan["requested"])
            if size > self.plan["measured"]
        }
        if any(row.nnodes > 1 for row in self.rows):
            targets |= {times * self.plan["measured"] for times in _FURTHER}
        return {
            arm: project(
                points(self.rows, arm),
                targets,
                gpus_per_node=self.plan["gpus_per_node"],
            )
            for arm in dict.fromkeys(row.arm for row in self.counted)
        }

    @cached_property
    def published(self) -> dict[str, list[PublishedRow]]:
        """Published scaling series for the same GPU, model and precision.

        Without a GPU, those of a GPU with many published results.
        """
        series, is_cpu = {}, self.evidence.is_cpu
        model = self.evidence.conditions["model"]
        for limit in (4, 3, 2, 1):  # as many of each precision as there are colours for
            series = {}
            for precision in self.outlooks:
                series |= curves(
                    model=_CONTEXT_MODEL if is_cpu else model,
                    gpu_name=self._gpu_name or _CONTEXT_GPU,
                    precision=precision,
                    largest_world_size=max(self.plan["requested"], 8),
                    limit=limit,
                )
            if len(series) <= len(PUBLISHED_COLOURS):
                break
        return series

    @property
    def _gpu_name(self) -> str | None:
        """What the GPUs are; those of a queue are known from their runs."""
        name = self.plan["devices"]["name"]
        known = name or self.evidence.conditions.get("device_name")
        return None if self.evidence.is_cpu else known

    @property
    def table(self) -> Table:
        """The headline: every measured size."""
        references = (
            reference_sentence(runs, arm) for arm, runs in self.evidence.runs.items()
        )
        return headline_table(
            self.rows,
            [text for text in references if text],
            is_cpu=self.evidence.is_cpu,
        )

    def _refusals(self) -> list[str]:
        """Return why sizes above the measured ones are not projected."""
        reasons = [
            refusal.reason
            for outlook in self.outlooks.values()
            for refusal in outlook.refusals
        ]
        return list(dict.fromkeys(reasons))

    @property
    def projection(self) -> Table | None:
        """Projected intervals for larger sizes; None without any."""
        rows = [
            [
                arm,
                f"{projection.world_size}",
                f"{wording.rate(projection.low_images_per_second)} to "
                f"{wording.rate(projection.high_images_per_second)}",
                f"{wording.percent(projection.low_efficiency)} to "
                f"{wording.percent(projection.high_efficiency)}",
            ]
            for arm, outlook in self.outlooks.items()
            for projection in outlook.projections
        ]
        caption = "Projected throughput, nominal 80% intervals"
        columns = ["precision", "GPUs", "images/s", "efficiency"]
        return Table(caption, columns, rows, [HELD_OUT]) if rows else None

    @property
    def context(self) -> Table | None:
        """Published scaling results, under different conditions; None without any."""
        if not self.published:
            return None
        members = [row for rows in self.published.values() for row in rows]
        sizes = sorted({row.world_size for row in members})
        return Table(
            "Published results on GPUs, images/s (conditions differ)",
            ["series", *(device_label("cuda", size) for size in sizes), "efficiency"],
            [
                [label, *published_cells(rows, sizes)]
                for label, rows in self.published.items()
            ],
        )

    def report(self) -> Report:
        """Return everything in one report."""
        others = [row for rows in self.published.values() for row in rows]
        larger = [row for row in self.counted if row.world_size != row.base_world_size]
        reduced, figures, certainty = self.bandwidth, [], None
        if larger:
            ratios = compare_arms(self.runs, self.diverged)
            certainty = certainty_table(larger, ratios, is_cpu=self.evidence.is_cpu)
        if self.counted:
            drawn = scaling_chart(self.counted, self.outlooks, self.published)
            figures = [Figure("Training throughput by number of devices", drawn)]
        tables = (
            self.table,
            certainty,
            *(ranks_table(self.times), self.projection, self.context),
        )
        parts = [
            Note([*self._refusals(), *straggler_sentences(self.times)]),
            *(table for table in tables if table is not None),
            *(reduced.note, *([reduced.table] if reduced.rows else [])),
            *(*figures, *reduced.figures),
        ]
        sources = [
            WELCH,
            *([NCCL_TESTS] if reduced.rows else []),
            *([_RING] if any(o.projections for o in self.outlooks.values()) else []),
            *(Source(row.source, row.url) for row in others),
        ]
        return page(
            _QUESTION,
            self.evidence,
            computed_sentence(self.counted),
            parts,
            method=HOW_MEASURED,
            sources=sources,
            numbers={
                **result_numbers(self.rows, self.outlooks),
                **ranks_result(self.times),
                "allreduce": [asdict(row) for row in reduced.rows],
                "published": [asdict(row) for row in others],
            },
            next_step=self._next_step,
        )

    @property
    def _next_step(self) -> str:
        is_cpu, per_node = self.evidence.is_cpu, self.plan["gpus_per_node"]
        nodes = self.plan["requested"] // per_node
        left_out = {"gpus", "device", *(("precision", *SIZES_OF_A_CPU) * is_cpu)}
        chosen = {n: v for n, v in self.plan["chosen"].items() if n not in left_out}
        command = papermill_command("scaling", chosen)
        if is_cpu:
            where = "nodes" if nodes > 1 else "a machine"
            return f"on {where} with GPUs: {command} -p gpus 8"
        if self.plan["measured"] < self.plan["requested"]:
            return f"on {self.plan['requested']} GPUs: {command} -p gpus {per_node}"
        if nodes == 2:
            further = papermill_command("scaling", {**chosen, "nnodes": 4})
            return f"on 4 nodes, for a larger projection: {further} -p gpus {per_node}"
        if "precision" in chosen:
            return ""  # the same with enough repeats
        return f"{command} -p gpus {per_node} -p precision fp32,fp16"


def result(study: Study) -> ScalingResult:
    """Return the result of a study, read from the store.

    Raises
    ------
    NotEnoughDataError
        If no run has finished, or a run has no measured step.
    """
    evidence, arms = Evidence.of(study), study.arms
    runs = [run for arm_runs in evidence.runs.values() for run in arm_runs]
    return ScalingResult(
        evidence=evidence,
        runs=[*map(_measured, runs)],
        bandwidth=bandwidth(study),
        times=[times for run in runs if (times := times_of(run)) is not None],
        diverged={arms[arm].precision: lost for arm, lost in evidence.lost.items()},
    )


def _measured(run: Run) -> MeasuredRun:
    summary = run.summary
    if summary.images_per_second is None:
        message = (
            f"Run {run.run_id} has no measured step. Use more steps than warmup_steps="
            f"{run.config.warmup_steps}, or a smaller batch for a small data set."
        )
        raise NotEnoughDataError(message)
    return MeasuredRun(
        arm=run.config.precision,
        world_size=run.config.world_size,
        nnodes=run.config.nnodes,
        device_type="cuda" if summary.device_type == "cuda" else "cpu",
        images_per_second=summary.images_per_second,
        data_wait_share=summary.data_wait_share,
        communication_share=summary.communication_share,
        peak_memory_bytes=summary.peak_memory_bytes,
        cpu_ms_per_image=summary.cpu_ms_per_image,
    )
