"""Chart of the bandwidth of an all-reduce, by message size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from nbkit.reports.chart_style import MEASURED_COLOURS, finished, value_axis
from nbkit.statistics.quantities import device_label
from nbkit.studies.devices import DeviceType

_BYTES = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, '~r') + ' GiB'"
    " : datum.value >= 1048576 ? format(datum.value / 1048576, '~r') + ' MiB'"
    " : datum.value >= 1024 ? format(datum.value / 1024, '~r') + ' KiB'"
    " : datum.value + ' B'"
)


@dataclass(frozen=True)
class AllReducePoint:
    """The bus bandwidth of all-reduce at one message size."""

    world_size: int
    message_bytes: int
    bus_bandwidth_bytes_per_second: float
    """nccl-tests' definition, see `nbkit.statistics`."""
    device_type: DeviceType = "cuda"
    nnodes: int = 1


def allreduce_chart(
    rows: Sequence[AllReducePoint], *, title: str = "All-reduce bus bandwidth"
) -> alt.LayerChart:
    """Draw bus bandwidth against message size, a line a world size."""
    values = [
        {
            "message_bytes": row.message_bytes,
            "gigabytes_per_second": row.bus_bandwidth_bytes_per_second / 1e9,
            "devices": device_label(row.device_type, row.world_size, row.nnodes),
        }
        for row in sorted(rows, key=lambda row: (row.world_size, row.message_bytes))
    ]
    sizes = sorted({row.message_bytes for row in rows})
    order = list(dict.fromkeys(value["devices"] for value in values))
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X(
            "message_bytes:Q",
            title="Message size",
            scale=alt.Scale(type="log", base=2, nice=False, padding=14),
            axis=alt.Axis(
                values=sizes[:: 1 + len(sizes) // 12],
                labelExpr=_BYTES,
                labelFlush=False,
                grid=False,
            ),
        ),
        y=alt.Y(
            "gigabytes_per_second:Q",
            title="Bus bandwidth (GB/s)",
            axis=value_axis(max(value["gigabytes_per_second"] for value in values)),
        ),
        color=alt.Color(
            "devices:N",
            title="Measured",
            sort=order,
            scale=alt.Scale(domain=order, range=MEASURED_COLOURS),
            legend=alt.Legend(symbolType="circle", symbolStrokeWidth=0),
        ),
    )
    on_cpu = all(row.device_type == "cpu" for row in rows)
    chart = alt.layer(
        base.mark_line(strokeWidth=2), base.mark_circle(size=50, opacity=1)
    )
    note = "message size / time x 2 (n - 1) / n, as defined by nccl-tests"
    return finished(chart, title, f"CPU smoke test; {note}" if on_cpu else note)
