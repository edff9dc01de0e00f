"""What the scaling notebook shows: bandwidth, table, projection, context, report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nbkit.analysis import charts
from nbkit.analysis.projection import DeviceType, Outlook, project
from nbkit.analysis.published import PublishedRow, curves
from nbkit.analysis.scaling import (
    MeasuredRun,
    ScalingRow,
    computed_sentence,
    points,
    result_document,
    scaling_table,
)
from nbkit.errors import NotEnoughDataError
from nbkit.launch.run import Run
from nbkit.study.report import Figure, Note, Report, Table
from nbkit.study.scaling_plan import ScalingPlan, plan, sweep_sizes
from nbkit.study.study import Study

__all__ = ["Bandwidth", "ScalingResult", "measure_bandwidth", "measured_runs", "plan"]

_INPUT_BOUND_SHARE = 0.1
"""Beyond this share of data wait, a throughput is the input's and not the GPU's: the
published logs that hide it have 28 to 47 %, the sound ones less than 6 %."""

_QUESTION = "How does training throughput grow with the number of GPUs?"


@dataclass(frozen=True)
class Bandwidth:
    """All-reduce bandwidth by message size."""

    rows: Sequence[Mapping[str, Any]]
    """Lines of the run's metrics; none where nothing was reduced."""
    world_size: int
    device_type: DeviceType

    @property
    def note(self) -> Note:
        """The largest bandwidth in a sentence, or why there is none."""
        if not self.rows:
            return Note(["All-reduce: one device has nothing to reduce."])
        best = max(self.rows, key=lambda row: row["bus_bandwidth_bytes_per_second"])
        sentence = (
            f"All-reduce between {self.world_size} ranks: up to "
            f"{_gigabytes(best['bus_bandwidth_bytes_per_second'])} GB/s bus bandwidth, "
            f"with messages of {_bytes(best['message_bytes'])}."
        )
        return Note([sentence])

    @property
    def table(self) -> Table:
        """Time and bandwidth of every message size."""
        return Table(
            "Measured all-reduce (bus bandwidth as nccl-tests defines it)",
            ["message", "time, ms", "algorithm, GB/s", "bus, GB/s"],
            [
                [
                    _bytes(row["message_bytes"]),
                    f"{row['time_seconds'] * 1e3:.3g}",
                    _gigabytes(row["algorithm_bandwidth_bytes_per_second"]),
                    _gigabytes(row["bus_bandwidth_bytes_per_second"]),
                ]
                for row in self.rows
            ],
        )

    @property
    def figures(self) -> list[Figure]:
        """The chart; none where nothing was reduced."""
        if not self.rows:
            return []
        chart = charts.allreduce_chart(
            [
                charts.AllReducePoint(
                    self.world_size,
                    row["message_bytes"],
                    row["bus_bandwidth_bytes_per_second"],
                    self.device_type,
                )
                for row in self.rows
            ]
        )
        return [Figure("All-reduce bus bandwidth by message size", chart)]


def measure_bandwidth(plan: ScalingPlan) -> Bandwidth:
    """Run the all-reduce measurement of the largest size, with progress.

    Raises
    ------
    RunFailedError
        If a rank fails.
    """
    device_type: DeviceType = "cpu" if plan.devices.is_cpu else "cuda"
    if plan.allreduce is None:
        return Bandwidth([], 1, device_type)
    study = Study.create(
        "scaling-allreduce",
        {f"all-reduce, {plan.measured} ranks": plan.allreduce},
        environment=plan.environment,
    )
    [[run]] = study.run().runs_by_arm().values()
    return Bandwidth(run.metrics("allreduce"), plan.measured, device_type)


@dataclass(frozen=True)
class ScalingResult:
    """What a finished scaling study says."""

    plan: ScalingPlan
    study: Study

    @cached_property
    def rows(self) -> list[ScalingRow]:
        """One row for each precision and size."""
        return scaling_table(measured_runs(self.study))

    @cached_property
    def outlooks(self) -> dict[str, Outlook]:
        """By precision, what may be projected to the sizes that were asked for."""
        targets = sweep_sizes(self.plan.asked)
        return {
            arm: project(
                points(self.rows, arm),
                [target for target in targets if target > self.plan.measured],
                gpus_per_node=self.plan.gpus_per_node,
            )
            for arm in dict.fromkeys(row.arm for row in self.rows)
        }

    @cached_property
    def published(self) -> dict[str, list[PublishedRow]]:
        """Published curves of the same GPU, model and precision, by series."""
        gpu_name = self.plan.devices.name
        config = next(iter(self.study.arms.values()))
        if gpu_name is None:
            return {}
        return {
            label: rows
            for precision in self.outlooks
            for label, rows in curves(
                model=config.model,
                gpu_name=gpu_name,
                precision=precision,
                largest_world_size=max(self.plan.asked, 8),
            ).items()
        }

    @property
    def table(self) -> Table:
        """The headline: every measured size."""
        is_cpu = self.plan.devices.is_cpu
        device = "process" if is_cpu else "GPU"
        return Table(
            f"Measured {'with CPU processes (functional)' if is_cpu else 'on GPUs'}",
            [
                "precision",
                "processes" if is_cpu else "GPUs",
                "images/s",
                "95 % interval (runs)",
                f"per {device}",
                "efficiency",
                "data wait",
                "communication",
                f"memory per {device}",
                "CPU ms/image",
            ],
            [_cells(row) for row in self.rows],
        )

    @property
    def notes(self) -> list[str]:
        """What a reader has to know: the plan's notes, refusals, starved input."""
        refusals = [
            refusal.reason
            for outlook in self.outlooks.values()
            for refusal in outlook.refusals
        ]
        return [*self.plan.notes, *dict.fromkeys(refusals), *_input_bound(self.rows)]

    @property
    def projection(self) -> Table | Note:
        """What lies beyond the measured sizes, as intervals, or why nothing does."""
        rows = [
            [
                arm,
                f"{projection.world_size}",
                f"{_rate(projection.low_images_per_second)} to "
                f"{_rate(projection.high_images_per_second)}",
                f"{_percent(projection.low_efficiency)} to "
                f"{_percent(projection.high_efficiency)}",
            ]
            for arm, outlook in self.outlooks.items()
            for projection in outlook.projections
        ]
        if rows:
            columns = ["precision", "GPUs", "images/s", "efficiency"]
            return Table(
                "Projected, between a latency-bound and a bandwidth-bound ring",
                columns,
                rows,
            )
        refusals = self.notes[len(self.plan.notes) :]
        return Note(refusals or ["Nothing to project: every size was measured."])

    @property
    def context(self) -> Table | Note:
        """Published curves, by others and under their own conditions."""
        if not self.published:
            what = self.plan.devices.name or "CPU processes"
            return Note([f"No published curve for {what} with this model is known."])
        return Table(
            "Published by others, under their own conditions",
            ["series", "GPUs", "images/s", "year"],
            [
                [label, f"{row.world_size}", _rate(row.images_per_second), f"{row.year}"]
                for label, rows in self.published.items()
                for row in rows
            ],
        )

    @cached_property
    def figure(self) -> Figure:
        """The answer as a picture."""
        chart = charts.scaling_chart(self.rows, self.outlooks, self.published)
        return Figure(_QUESTION, chart)

    def report(self, bandwidth: Bandwidth) -> Report:
        """Return everything in one report."""
        others = (self.projection, self.context)
        tables = [self.table, *(part for part in others if isinstance(part, Table))]
        if bandwidth.rows:
            tables.append(bandwidth.table)
        document = result_document(self.rows, self.outlooks, self._conditions())
        return Report(
            title=_QUESTION,
            answer=computed_sentence(self.rows),
            notes=[*self.notes, *bandwidth.note.sentences],
            tables=tables,
            figures=[self.figure, *bandwidth.figures],
            result={**document, "allreduce": [dict(row) for row in bandwidth.rows]},
            next_step=_next_step(self.plan),
        )

    def _conditions(self) -> dict[str, Any]:
        """Return what fixes the meaning of the numbers."""
        runs = [run for runs in self.study.runs_by_arm().values() for run in runs]
        config = runs[0].config
        worker = runs[0].worker
        same = ("model", "batch_size_per_gpu", "image_size", "memory_format", "data")
        versions = ("torch", "torchvision", "cuda", "cudnn", "nccl", "backend")
        return {
            **{name: getattr(config, name) for name in (*same, "loader", "steps")},
            "warmup_steps": config.warmup_steps,
            "device_name": runs[0].summary.device_name,
            **{name: worker.get(name) for name in versions},
            "oversubscribed": any(run.summary.oversubscribed for run in runs),
            "study_id": self.study.study_id,
            "run_ids": [run.run_id for run in runs],
        }


def measured_runs(study: Study) -> list[MeasuredRun]:
    """Return the finished runs of a study, in the numbers that scaling needs.

    Raises
    ------
    NotEnoughDataError
        If a run has no measured step.
    """
    return [_measured(run) for runs in study.runs_by_arm().values() for run in runs]


def _measured(run: Run) -> MeasuredRun:
    summary = run.summary
    if summary.images_per_second is None:
        message = (
            f"run {run.run_id} has 0 measured steps; use more steps than warmup_steps="
            f"{run.config.warmup_steps}, or a smaller batch if the data are few."
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


def _cells(row: ScalingRow) -> list[str | None]:
    rate = row.images_per_second
    known = rate.ci_low is not None and rate.ci_high is not None
    interval = f"{_rate(rate.ci_low)} to {_rate(rate.ci_high)}" if known else "–"
    return [
        row.arm,
        f"{row.world_size}",
        _rate(rate.median),
        f"{interval} ({rate.n})",
        _rate(row.images_per_second_per_device),
        _percent(row.efficiency),
        _percent(row.data_wait_share),
        _percent(row.communication_share),
        _bytes(row.peak_memory_bytes),
        None if row.cpu_ms_per_image is None else f"{row.cpu_ms_per_image:.2f}",
    ]


def _input_bound(rows: Sequence[ScalingRow]) -> list[str]:
    worst = max(rows, key=lambda row: row.data_wait_share or 0)
    share = worst.data_wait_share or 0
    if share < _INPUT_BOUND_SHARE:
        return []
    return [
        f"Input-bound: ranks waited for data {_percent(share)} of the time with "
        f"{worst.arm} at size {worst.world_size}; these are rates of the input, not of "
        "the devices."
    ]


def _next_step(plan: ScalingPlan) -> str:
    command = "papermill notebooks/scaling.ipynb out.ipynb"
    if plan.devices.is_cpu:
        return f"on a machine with GPUs: {command} -p gpus 8"
    if plan.measured < plan.asked:
        return f"on {plan.asked} GPUs: {command} -p gpus {plan.asked}"
    return f"{command} -p gpus {plan.asked} -p precision fp32,fp16"


def _rate(images_per_second: float | None) -> str:
    if images_per_second is None:
        return "–"
    digits = 0 if images_per_second >= 1000 else 1
    return f"{images_per_second:,.{digits}f}"


def _percent(part: float | None) -> str:
    return "–" if part is None else f"{part * 100:.1f} %"


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.3g}"


def _bytes(size: float | None) -> str:
    if size is None:
        return "–"
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
