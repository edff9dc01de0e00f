"""Chart of scaling: throughput by number of devices.

Measured is a solid line, projected a shaded band, published a dotted line, and the
legend says so. A kind's rows carry no field of another kind's, so that they cannot be
drawn as one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from nbkit.questions.scaling.curves import PROBABILITY
from nbkit.questions.scaling.projection import Outlook
from nbkit.questions.scaling.throughput import ScalingRow
from nbkit.references.rows import PublishedRow
from nbkit.reports.charts import (
    Rows,
    finished,
    interval_subtitle,
    intervals,
    measured_colour,
    published_points,
    rate_axis,
    rate_cells,
    tooltip,
    value_scale,
)


def scaling_chart(
    rows: Sequence[ScalingRow],
    outlooks: Mapping[str, Outlook],
    published: Mapping[str, Sequence[PublishedRow]],
) -> alt.LayerChart:
    """Draw images per second against devices."""
    on_cpu = all(row.device_type == "cpu" for row in rows)
    measured = [
        {
            "arm": row.arm,
            "world_size": row.world_size,
            "size": row.label,
            **rate_cells(row.images_per_second),
            "efficiency": row.efficiency,
        }
        for row in rows
    ]
    others = [
        {
            "series": label,
            "world_size": row.world_size,
            "images_per_second": row.images_per_second or 0.0,
            "source": row.source,
        }
        for label, members in ({} if on_cpu else published).items()
        for row in members
    ]
    projected = projected_values(rows, outlooks)
    counts = sorted({row["world_size"] for row in (*measured, *projected, *others)})
    ideal = ideal_values(rows, counts[-1])
    nodes = node_labels(rows)
    what = "CPU processes" if on_cpu else "GPUs"
    x = alt.X(
        "world_size:Q",
        title=f"{what} (below: nodes x {what} per node)" if nodes else what,
        axis=alt.Axis(
            values=tick_labels(counts, wide=bool(nodes)),
            labelExpr=_with_nodes(nodes) if nodes else alt.Undefined,
            format="d",
            grid=False,
        ),
        # A single size is in the middle.
        scale=alt.Scale(
            domain=[0, counts[-1] * (1.04 if counts[1:] else 2)], nice=False
        ),
    )
    points = [row["images_per_second"] for row in (*measured, *ideal, *others)]
    points += [corner["high"] for corner in projected]
    scale, is_cut = value_scale(points, measured)
    y = rate_axis(alt.Y, scale, max(row.images_per_second.median for row in rows))
    titles = {"arm": "Measured", "size": "Devices", "images_per_second": "Images/s"}
    titles |= {"runs": "Runs", "efficiency": "Efficiency"}
    colour = measured_colour(measured, "arm")
    own = alt.layer(
        *([_ideal_lines(ideal, x, y, colour)] if ideal else []),
        *([_band(projected, x, y, colour)] if projected else []),
        intervals(measured, x, y, colour, titles, has_line=True),
    )
    groups: list[Any] = [own]
    if others:
        titles = {"series": "Published", "world_size": "Devices"}
        titles |= {"images_per_second": "Images/s", "source": "Source"}
        groups.insert(0, published_points(others, x, y, titles, has_line=True))
    subtitle = interval_subtitle(measured, is_cpu=on_cpu, is_cut=is_cut)
    return finished(groups, "Training throughput by number of devices", subtitle)


def _with_nodes(labels: Mapping[int, Sequence[str]]) -> str:
    """Return the expression of a label: the count, and below it its nodes."""
    lines = {str(count): [str(count), *below] for count, below in labels.items()}
    return f"({json.dumps(lines)})[datum.value] || datum.label"


def _ideal_lines(ends: Rows, x: alt.X, y: alt.Y, colour: alt.Color) -> alt.Chart:
    legend = alt.Legend(
        title="Ideal", symbolType="stroke", symbolSize=400, symbolStrokeColor="#555555"
    )
    dash = alt.StrokeDash("what:N", scale=alt.Scale(range=[[6, 4]]), legend=legend)
    lines = alt.Chart(alt.Data(values=list(ends)))
    return lines.mark_line(strokeWidth=1.2, opacity=0.75).encode(x, y, colour, dash)


def _band(corners: Rows, x: alt.X, y: alt.Y, colour: alt.Color) -> alt.Chart:
    legend = alt.Legend(
        title="Projected",
        symbolType="square",
        symbolFillColor="#888888",
        symbolStrokeWidth=0,
        symbolSize=160,
    )
    low = y.copy()
    low["shorthand"] = "low:Q"
    titles = {"arm": "Projected", "world_size": "Devices"}
    titles |= {"low": "Images/s from", "high": "Images/s to"}
    return (
        alt.Chart(alt.Data(values=list(corners)))
        .mark_area(strokeWidth=1.5)
        .encode(
            x,
            low,
            alt.Y2("high:Q"),
            colour,
            # An outline, because where few points leave little open the band is thin.
            alt.Stroke("arm:N", scale=colour["scale"], legend=None),
            alt.Opacity("what:N", scale=alt.Scale(range=[0.3, 0.3]), legend=legend),
            tooltip=tooltip(**titles),
        )
    )


def ideal_values(rows: Sequence[ScalingRow], largest: int) -> list[dict[str, Any]]:
    """Return both ends of each arm's line of linear scaling, up to ``largest``.

    No line begins at ``largest`` itself: it would have no length.
    """
    return [
        {
            "arm": row.arm,
            "world_size": count,
            "images_per_second": row.images_per_second_per_device * count,
            "what": "linear",
        }
        for row in rows
        if row.world_size == row.base_world_size < largest
        for count in (row.world_size, largest)
    ]


def projected_values(
    rows: Sequence[ScalingRow], outlooks: Mapping[str, Outlook]
) -> list[dict[str, Any]]:
    """Return the corners of each arm's band, from its last measured point on."""
    last = {row.arm: row for row in rows}  # sizes ascend within an arm
    corners: list[dict[str, Any]] = []
    for arm, outlook in outlooks.items():
        if arm not in last or not outlook.projections:
            continue
        start = last[arm].images_per_second.median
        ends = [(last[arm].world_size, start, start)]
        ends += [
            (end.world_size, end.low_images_per_second, end.high_images_per_second)
            for end in outlook.projections
        ]
        corners += [
            {
                "arm": arm,
                "world_size": world_size,
                "low": low,
                "high": high,
                "what": f"{PROBABILITY:.0%} interval",
            }
            for world_size, low, high in ends
        ]
    return corners


def node_labels(rows: Sequence[ScalingRow]) -> dict[int, list[str]]:
    """Return what stands below a count that was measured on several nodes.

    Such as ``2 x 8``; where arms differ, each of theirs.
    """
    by_count: dict[int, list[str]] = {}
    for row in rows:
        labels = by_count.setdefault(row.world_size, [])
        if row.nnodes > 1 and row.label not in labels:
            labels.append(row.label)
    return {count: labels for count, labels in by_count.items() if labels}


def tick_labels(counts: Sequence[int], *, wide: bool = False) -> list[int]:
    """Return the counts without those whose label would touch the next larger one."""
    apart = 0.06 if wide else 0.03
    labels: list[int] = []
    for count in reversed(counts):
        if not labels or (labels[-1] - count) / counts[-1] > apart:
            labels.append(count)
    return labels[::-1]
