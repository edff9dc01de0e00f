"""Charts of input pipelines: throughput, and the demand of devices.

The demand is a dashed line; the legend says whether that was measured, or emulated
from published rates.
"""

from __future__ import annotations

from typing import Any

import altair as alt

from nbkit.reports.charts import (
    Rows,
    arm_axis,
    demand,
    finished,
    interval_subtitle,
    intervals,
    measured_colour,
    rate_axis,
    rate_cells,
    value_scale,
)
from nbkit.statistics import Summary

_TITLES = {"arm": "Measured", "images_per_second": "Images/s", "runs": "n"}


def pipeline_row(
    arm: str, series: str, world_size: int, rate: Summary, wait: float | None
) -> dict[str, Any]:
    """Return what the charts draw of an arm; a series has one colour."""
    return {
        "arm": arm,
        "series": series,
        "world_size": world_size,
        **rate_cells(rate),
        "data_wait_percent": None if wait is None else 100 * wait,
        "note": "" if wait is None else f"waits {100 * wait:.0f}%",
    }


def pipelines_chart(rows: Rows, asked: Rows, legend: str, title: str) -> alt.LayerChart:
    """Draw images per second of every arm, all at one number of devices."""
    scale, is_cut = _scale(rows, asked, room=1.12)
    x = rate_axis(alt.X, scale, scale["domain"][1])
    titles = {**_TITLES, "data_wait_percent": "Data wait, %"}
    colour = measured_colour(rows)
    groups: list[Any] = [
        intervals(rows, arm_axis(rows), x, colour, titles, note="note")
    ]
    if asked:
        groups.append(demand(asked, x, legend))
    subtitle = interval_subtitle(rows, is_cut=is_cut)
    return finished(groups, title, subtitle, arms=len(rows))


def devices_chart(
    rows: Rows, asked: Rows, legend: str, title: str, device: str
) -> alt.LayerChart:
    """Draw images per second of a few pipelines against the number of devices."""
    scale, is_cut = _scale(rows, asked, room=1.05)
    sizes = sorted({row["world_size"] for row in rows})
    x = alt.X(
        "world_size:Q",
        title=device[:1].upper() + device[1:],
        axis=alt.Axis(values=sizes, format="d", grid=False),
        scale=alt.Scale(domain=[0, sizes[-1] * 1.1], nice=False),
    )
    y = rate_axis(alt.Y, scale, scale["domain"][1])
    colour = measured_colour(rows)
    groups: list[Any] = [intervals(rows, x, y, colour, _TITLES, has_line=True)]
    if asked:
        groups.append(demand(asked, y, legend, x))
    return finished(groups, title, interval_subtitle(rows, is_cut=is_cut))


def _scale(rows: Rows, asked: Rows, room: float) -> tuple[alt.Scale, bool]:
    points = [row["images_per_second"] for row in (*rows, *asked)]
    return value_scale(points, rows, room=room)
