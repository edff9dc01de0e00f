"""Charts of storage: throughput beside the demand of GPUs, and reads over time.

Measured throughput is a filled circle with its range, the published demand a dashed
line; the legends say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from nbkit.questions.storage.demand import Demand, Supply
from nbkit.reports.charts import (
    Rows,
    arm_axis,
    demand,
    finished,
    intervals,
    lines,
    measured_colour,
    rate_axis,
    value_axis,
    value_scale,
)

_PANEL_HEIGHT = 150
_ORIGINS = {"read": "reads without a loader", "loader": "loader"}


def supply_chart(
    supplies: Sequence[Supply], required: Demand | None, *, title: str, subtitle: str
) -> alt.LayerChart:
    """Draw the throughput of every place, and the demand."""
    rows = [
        {
            "arm": f"{supply.place}: {supply.what}",
            "series": _ORIGINS[supply.origin],
            "images_per_second": supply.images_per_second.median,
            "gigabytes_per_second": supply.bytes_per_second.median / 1e9,
            "low": supply.images_per_second.minimum,
            "high": supply.images_per_second.maximum,
            "runs": supply.images_per_second.n,
        }
        for supply in supplies
    ]
    asked = [] if required is None else [required.images_per_second]
    scale, _ = value_scale([*(row["high"] for row in rows), *asked], [])
    title_of_rate = "Throughput (images/s; reads: bytes / mean image size)"
    x = rate_axis(alt.X, scale, scale["domain"][1], title_of_rate)
    titles = {"arm": "Measured", "images_per_second": "Images/s"}
    titles |= {"gigabytes_per_second": "GB/s", "runs": "Repeats or runs"}
    groups: list[Any] = [
        intervals(
            rows,
            arm_axis(rows),
            x,
            measured_colour(rows),
            titles,
            interval=("Lowest", "Highest"),
        )
    ]
    if required is not None:
        line = {
            "images_per_second": required.images_per_second,
            "series": f"required by {required.gpus} x {required.gpu_name}",
            "source": required.source,
        }
        groups.append(demand([line], x, "Published rate"))
    return finished(groups, title, subtitle, arms=len(rows))


def over_time_chart(
    rows: Rows, *, title: str, y_title: str, subtitle: str
) -> alt.LayerChart:
    """Draw one quantity of reads over time."""
    x = alt.X(
        "seconds:Q",
        title="Time (s)",
        axis=alt.Axis(gridColor="#E6E6E6", tickCount=6),
        scale=alt.Scale(zero=True),
    )
    y = alt.Y(
        "value:Q", title=y_title, axis=value_axis(max(row["value"] for row in rows))
    )
    titles = {"series": "Measured", "seconds": "Seconds", "value": y_title}
    return finished([lines(rows, x, y, titles)], title, subtitle, height=_PANEL_HEIGHT)
