"""Charts of storage: throughput beside the demand of GPUs, and reads over time.

Measured throughput is a filled circle with its range, the published demand a dashed
line; the legends say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from nbkit.questions.storage.demand import Demand, Supply
from nbkit.reports.chart_style import (
    MEASURED_COLOURS,
    PUBLISHED_COLOURS,
    beyond_colours,
    finished,
    measured_legend,
    tooltip,
    value_axis,
)

_LINE_HEIGHT = 26
_PANEL_HEIGHT = 150
_ORIGINS = {"read": "reads without a loader", "loader": "loader"}


def supply_chart(
    supplies: Sequence[Supply], demand: Demand | None, *, title: str, subtitle: str
) -> alt.LayerChart:
    """Draw the throughput of every place, and the demand."""
    rows = [_row(supply) for supply in supplies]
    required = 0.0 if demand is None else demand.images_per_second
    largest = max([*(row["high"] for row in rows), required])
    scale = alt.Scale(domain=[0, 1.05 * largest], nice=False)
    y = alt.Y(
        "arm:N",
        sort=[row["arm"] for row in rows],
        title=None,
        axis=alt.Axis(labelLimit=300, grid=True, gridColor="#F0F0F0", ticks=False),
    )
    x_title = "Throughput (images/s; reads: bytes / mean image size)"
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=y,
        color=alt.Color(
            "series:N",
            scale=alt.Scale(
                domain=list(_ORIGINS.values()), range=MEASURED_COLOURS[: len(_ORIGINS)]
            ),
            legend=measured_legend(),
        ),
        tooltip=tooltip(
            arm="Measured",
            images_per_second="Images/s",
            gigabytes_per_second="GB/s",
            low="Lowest",
            high="Highest",
            runs="Repeats or runs",
        ),
    )
    layers: list[Any] = [
        alt.layer(
            base.mark_rule(strokeWidth=1.5).encode(
                x=alt.X("low:Q", title=x_title, scale=scale), x2="high:Q"
            ),
            base.mark_circle(size=75, opacity=1).encode(
                x=alt.X(
                    "images_per_second:Q",
                    title=x_title,
                    axis=value_axis(largest),
                    scale=scale,
                )
            ),
        )
    ]
    if demand is not None:
        layers.append(_demand_layer(demand, scale, x_title))
    chart = alt.layer(*layers).resolve_scale(color="independent")
    return finished(chart, title, subtitle, height=_LINE_HEIGHT * len(rows))


def _row(supply: Supply) -> dict[str, Any]:
    rate = supply.images_per_second
    return {
        "arm": f"{supply.place}: {supply.what}",
        "series": _ORIGINS[supply.origin],
        "images_per_second": rate.median,
        "gigabytes_per_second": supply.bytes_per_second.median / 1e9,
        "low": rate.minimum,
        "high": rate.maximum,
        "runs": rate.n,
    }


def _demand_layer(demand: Demand, scale: alt.Scale, x_title: str) -> alt.Chart:
    value = {
        "required": demand.images_per_second,
        "series": f"required by {demand.gpus} x {demand.gpu_name}",
        "source": demand.source,
    }
    legend = alt.Legend(
        title="Published rate",
        symbolType="stroke",
        symbolDash=[6, 4],
        symbolStrokeWidth=2,
    )
    colour = alt.Scale(range=PUBLISHED_COLOURS[:1])
    return (
        alt.Chart(alt.Data(values=[value]))
        .mark_rule(strokeDash=[6, 4], strokeWidth=2)
        .encode(
            x=alt.X("required:Q", title=x_title, scale=scale),
            color=alt.Color("series:N", scale=colour, legend=legend),
            tooltip=tooltip(series="GPU", required="Images/s", source="Source"),
        )
    )


def over_time_chart(
    rows: Sequence[Mapping[str, Any]], *, title: str, y_title: str, subtitle: str
) -> alt.LayerChart:
    """Draw one quantity of reads over time."""
    series = list(dict.fromkeys(row["series"] for row in rows))
    largest = max(row["value"] for row in rows)
    base = alt.Chart(alt.Data(values=list(rows))).encode(
        x=alt.X(
            "seconds:Q",
            title="Time (s)",
            axis=alt.Axis(gridColor="#E6E6E6", tickCount=6),
            scale=alt.Scale(zero=True),
        ),
        y=alt.Y("value:Q", title=y_title, axis=value_axis(largest)),
        color=alt.Color(
            "series:N",
            scale=alt.Scale(domain=series, range=MEASURED_COLOURS),
            legend=measured_legend(),
        ),
        tooltip=tooltip(series="Measured", seconds="Seconds", value=y_title),
    )
    line, points = base.mark_line(strokeWidth=1.5), base.mark_circle(size=35, opacity=1)
    if more := beyond_colours(series):
        line = line.encode(strokeDash=more["strokeDash"])
        points = base.mark_point(filled=True, size=35, opacity=1).encode(
            shape=more["shape"]
        )
    chart = alt.layer(line, points)
    return finished(chart, title, subtitle, height=_PANEL_HEIGHT)
