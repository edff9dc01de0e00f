"""All-reduce measurement of a study: bandwidth by message size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from nbkit import statistics
from nbkit.reports.charts import finished, lines, value_axis
from nbkit.reports.columns import Column, number, table
from nbkit.reports.parts import Figure, Note, Source, Table
from nbkit.statistics import AllReduceTiming
from nbkit.statistics import quantities as wording
from nbkit.studies.devices import DeviceType
from nbkit.studies.study import Study

NCCL_TESTS = Source(
    "nccl-tests, Performance reported by NCCL tests (bus bandwidth)",
    "https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md",
)
"""What bus bandwidth is."""

_BYTES = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, '~r') + ' GiB'"
    " : datum.value >= 1048576 ? format(datum.value / 1048576, '~r') + ' MiB'"
    " : datum.value >= 1024 ? format(datum.value / 1024, '~r') + ' KiB'"
    " : datum.value + ' B'"
)


_ALGORITHM = "algorithm_bandwidth_bytes_per_second"
_BUS = "bus_bandwidth_bytes_per_second"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}"


def _quartiles(row: AllReduceTiming) -> str:
    ends = (row.time_seconds_q25, row.time_seconds_q75)
    return " to ".join(map(_milliseconds, ends))


_COLUMNS = (
    number("message", "message_bytes", wording.size),
    number("median, ms", "time_seconds", _milliseconds),
    Column("quartiles, ms", _quartiles),
    *(number(None, f"time_seconds_{end}") for end in ("q25", "q75")),
    number("algorithm, GB/s", _ALGORITHM, wording.gigabytes),
    number("bus, GB/s", _BUS, wording.gigabytes),
    number(None, "iterations"),
)


@dataclass(frozen=True)
class Bandwidth:
    """All-reduce bandwidth by message size."""

    rows: Sequence[AllReduceTiming]
    """One a message size; none where nothing was reduced."""
    world_size: int
    device_type: DeviceType
    nnodes: int = 1
    is_missing: bool = False
    """Whether it is planned but not finished."""

    @property
    def note(self) -> Note:
        """A sentence with the largest bandwidth, or why there is none."""
        if self.is_missing:
            return Note(["All-reduce: planned but not finished."])
        if not self.rows:
            return Note(["All-reduce: not measured (requires 2 or more ranks)."])
        best = max(self.rows, key=lambda row: row.bus_bandwidth_bytes_per_second)
        speed = wording.gigabytes(best.bus_bandwidth_bytes_per_second)
        nodes = f" on {self.nnodes} nodes" if self.nnodes > 1 else ""
        sentence = (
            f"All-reduce between {self.world_size} ranks{nodes}: up to {speed} GB/s "
            f"bus bandwidth, with messages of {wording.size(best.message_bytes)}."
        )
        return Note([sentence])

    @property
    def table(self) -> Table:
        """Time and bandwidth of every message size; call it only if there are rows."""
        return table(
            "All-reduce bandwidth (bus bandwidth as defined by nccl-tests)",
            _COLUMNS,
            self.rows,
            [
                f"{self.rows[0].iterations} all-reduces per message size in one run; "
                "bandwidth: from the median time."
            ],
        )

    @property
    def figures(self) -> list[Figure]:
        """The chart; empty without measurements."""
        if not self.rows:
            return []
        devices = wording.device_label(self.device_type, self.world_size, self.nnodes)
        rows = [
            {
                "message_bytes": row.message_bytes,
                "gigabytes_per_second": row.bus_bandwidth_bytes_per_second / 1e9,
                "devices": devices,
            }
            for row in sorted(self.rows, key=lambda row: row.message_bytes)
        ]
        sizes = [row["message_bytes"] for row in rows]
        x = alt.X(
            "message_bytes:Q",
            title="Message size",
            scale=alt.Scale(type="log", base=2, nice=False, padding=14),
            axis=alt.Axis(
                values=sizes[:: 1 + len(sizes) // 12],
                labelExpr=_BYTES,
                labelFlush=False,
                grid=False,
            ),
        )
        y = alt.Y(
            "gigabytes_per_second:Q",
            title="Bus bandwidth (GB/s)",
            axis=value_axis(max(row["gigabytes_per_second"] for row in rows)),
        )
        titles = {"message_bytes": "Bytes", "gigabytes_per_second": "GB/s"}
        cpu = "CPU smoke test; " if self.device_type == "cpu" else ""
        chart = finished(
            [lines(rows, x, y, titles, field="devices")],
            "All-reduce bus bandwidth",
            f"{cpu}message size / time x 2 (n - 1) / n, as defined by nccl-tests",
        )
        return [Figure("All-reduce bus bandwidth by message size", chart)]


def bandwidth(study: Study) -> Bandwidth:
    """Return the all-reduce bandwidth that a study measured once.

    Without such a measurement there are no rows.
    """
    arms, runs = study.arms, study.runs_by_arm()
    planned = [name for name in study.unrepeated if arms[name].task == "allreduce"]
    for run in (run for name in planned for run in runs[name]):
        summary = run.summary
        return Bandwidth(
            [statistics.allreduce_timing(row) for row in run.metrics("allreduce")],
            run.config.world_size,
            "cuda" if summary.device_type == "cuda" else "cpu",
            run.config.nnodes,
        )
    return Bandwidth([], 1, "cpu", is_missing=bool(planned))
