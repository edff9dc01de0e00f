"""The all-reduce measurement of a study: how fast devices exchange gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from IPython.display import display

from nbkit import statistics
from nbkit.analysis import charts
from nbkit.analysis.projection import DeviceType
from nbkit.statistics import AllReduceTiming
from nbkit.study import wording
from nbkit.study.report import Figure, Note, Table
from nbkit.study.scaling_plan import ScalingPlan
from nbkit.study.study import Study

__all__ = ["Bandwidth", "measure_bandwidth"]


@dataclass(frozen=True)
class Bandwidth:
    """All-reduce bandwidth by message size."""

    rows: Sequence[AllReduceTiming]
    """One a message size; none where nothing was reduced."""
    world_size: int
    device_type: DeviceType

    @property
    def note(self) -> Note:
        """The largest bandwidth in a sentence, or why there is none."""
        if not self.rows:
            return Note(["All-reduce: one device has nothing to reduce."])
        best = max(self.rows, key=lambda row: row.bus_bandwidth_bytes_per_second)
        speed = wording.gigabytes(best.bus_bandwidth_bytes_per_second)
        sentence = (
            f"All-reduce between {self.world_size} ranks: up to {speed} GB/s bus "
            f"bandwidth, with messages of {wording.size(best.message_bytes)}."
        )
        return Note([sentence])

    @property
    def table(self) -> Table:
        """Time and bandwidth of every message size; call it only if there are rows."""
        return Table(
            "Measured all-reduce (bus bandwidth as nccl-tests defines it)",
            ["message", "median, ms", "quartiles, ms", "algorithm, GB/s", "bus, GB/s"],
            [
                [
                    wording.size(row.message_bytes),
                    f"{row.time_seconds * 1e3:.3g}",
                    f"{row.time_seconds_q25 * 1e3:.3g} to "
                    f"{row.time_seconds_q75 * 1e3:.3g}",
                    wording.gigabytes(row.algorithm_bandwidth_bytes_per_second),
                    wording.gigabytes(row.bus_bandwidth_bytes_per_second),
                ]
                for row in self.rows
            ],
            [
                f"{self.rows[0].iterations} all-reduces of each size, one after the "
                "other in one run; bandwidths are those of the median."
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
                    row.message_bytes,
                    row.bus_bandwidth_bytes_per_second,
                    self.device_type,
                )
                for row in self.rows
            ]
        )
        return [Figure("All-reduce bus bandwidth by message size", chart)]

    def _ipython_display_(self) -> None:
        display(self.note)
        for figure in self.figures:
            display(figure)


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
    rows = [statistics.allreduce_timing(row) for row in run.metrics("allreduce")]
    return Bandwidth(rows, plan.measured, device_type)
