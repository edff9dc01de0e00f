"""Charts of scaling and all-reduce.

Measured, projected and published never share a mark: measured is a filled circle on
a solid line with interval bars, projected a shaded band, published a hollow diamond
on a dotted line, and the legend says so. Charts have a white background,
so that they read the same on paper and in a dark notebook.

Only features that Vega-Lite 5.6 has are used: the renderer built into JupyterLab 4
has that version, and it needs no network.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from nbkit.questions.scaling.chart_values import (
    highest_value,
    ideal_values,
    measured_values,
    node_labels,
    projected_values,
    published_values,
    subtitle,
    tick_labels,
)
from nbkit.questions.scaling.projection import Outlook
from nbkit.questions.scaling.throughput import ScalingRow
from nbkit.references.rows import PublishedRow
from nbkit.reports.chart_style import (
    MEASURED_COLOURS,
    PUBLISHED_COLOURS,
    finished,
    measured_legend,
    published_legend,
    tooltip,
    value_axis,
    with_intervals,
)


def scaling_chart(
    rows: Sequence[ScalingRow],
    outlooks: Mapping[str, Outlook] | None = None,
    published: Mapping[str, Sequence[PublishedRow]] | None = None,
    *,
    title: str = "Training throughput by number of devices",
) -> alt.LayerChart:
    """Draw images per second against devices."""
    on_cpu = all(row.device_type == "cpu" for row in rows)
    projected = projected_values(rows, outlooks or {})
    others = {} if on_cpu else dict(published or {})
    counts = sorted(
        {row.world_size for row in rows}
        | {point["world_size"] for point in projected}
        | {row.world_size for members in others.values() for row in members}
    )
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
    highest = highest_value(rows, projected, others)
    y = alt.Y(
        "images_per_second:Q",
        title="Images per second",
        axis=value_axis(max(row.images_per_second.median for row in rows)),
        scale=alt.Undefined if highest is None else alt.Scale(domain=[0, highest]),
    )
    top = max(row.images_per_second.ci_high or 0.0 for row in rows)
    lines, *marks = _measured_layers(rows, x, y, 2 * (highest or top))
    ideal = ideal_values(rows, counts[-1])
    own = alt.layer(
        lines,
        *([_ideal_lines(rows, ideal, x, y)] if ideal else []),
        *([_band(rows, projected, x)] if projected else []),
        *marks,
    )
    layers: list[alt.LayerChart] = [own]
    if others:
        layers.insert(0, _published_layer(others, x, y))
    chart = alt.layer(*layers).resolve_scale(
        color="independent", shape="independent", strokeDash="independent"
    )
    return finished(chart, title, subtitle(rows, is_cut=highest is not None))


def _with_nodes(labels: Mapping[int, Sequence[str]]) -> str:
    """Return the expression of a label: the count, and below it its nodes."""
    lines = {str(count): [str(count), *below] for count, below in labels.items()}
    return f"({json.dumps(lines)})[datum.value] || datum.label"


def _arm_scale(rows: Sequence[ScalingRow]) -> alt.Scale:
    arms = list(dict.fromkeys(row.arm for row in rows))
    return alt.Scale(domain=arms, range=MEASURED_COLOURS)


def _arm_colour(rows: Sequence[ScalingRow]) -> alt.Color:
    return alt.Color(
        "arm:N",
        scale=_arm_scale(rows),
        legend=measured_legend(),
    )


def _measured_layers(
    rows: Sequence[ScalingRow], x: alt.X, y: alt.Y, limit: float
) -> list[alt.Chart]:
    base = alt.Chart(alt.Data(values=measured_values(rows))).encode(
        x=x,
        color=_arm_colour(rows),
        tooltip=tooltip(
            arm="Measured",
            size="Devices",
            images_per_second="Images/s",
            low="95% CI from",
            high="95% CI to",
            runs="Runs",
            efficiency="Efficiency",
        ),
    )
    with_interval = with_intervals(base, limit)
    caps = with_interval.mark_tick(
        orient="horizontal", thickness=1.5, size=10, opacity=1, clip=True
    )
    return [
        base.mark_line(strokeWidth=2).encode(y=y),
        with_interval.mark_rule(strokeWidth=1.5, clip=True).encode(
            y="low:Q", y2="end:Q"
        ),
        caps.encode(y="low:Q"),
        caps.encode(y="end:Q"),
        base.mark_circle(size=75, opacity=1).encode(y=y),
    ]


def _ideal_lines(
    rows: Sequence[ScalingRow], ends: list[dict[str, Any]], x: alt.X, y: alt.Y
) -> alt.Chart:
    return (
        alt.Chart(alt.Data(values=ends))
        .mark_line(strokeWidth=1.2, opacity=0.75)
        .encode(
            x=x,
            y=y,
            color=_arm_colour(rows),
            strokeDash=alt.StrokeDash(
                "what:N",
                scale=alt.Scale(range=[[6, 4]]),
                legend=alt.Legend(
                    title="Ideal",
                    symbolType="stroke",
                    symbolSize=400,
                    symbolStrokeColor="#555555",
                ),
            ),
        )
    )


def _band(
    rows: Sequence[ScalingRow], corners: list[dict[str, Any]], x: alt.X
) -> alt.Chart:
    return (
        alt.Chart(alt.Data(values=corners))
        .mark_area(strokeWidth=1.5)
        .encode(
            x=x,
            y=alt.Y("low:Q", title="Images per second"),
            y2="high:Q",
            color=_arm_colour(rows),
            # An outline, because where few points leave little open the band is thin.
            stroke=alt.Stroke("arm:N", scale=_arm_scale(rows), legend=None),
            opacity=alt.Opacity(
                "what:N",
                scale=alt.Scale(range=[0.3, 0.3]),
                legend=alt.Legend(
                    title="Projected",
                    symbolType="square",
                    symbolFillColor="#888888",
                    symbolStrokeWidth=0,
                    symbolSize=160,
                ),
            ),
            tooltip=tooltip(
                arm="Projected",
                world_size="Devices",
                low="Images/s from",
                high="Images/s to",
            ),
        )
    )


def _published_layer(
    others: Mapping[str, Sequence[PublishedRow]], x: alt.X, y: alt.Y
) -> alt.LayerChart:
    base = alt.Chart(alt.Data(values=published_values(others))).encode(
        x=x,
        y=y,
        color=alt.Color(
            "series:N",
            scale=alt.Scale(domain=list(others), range=PUBLISHED_COLOURS),
            legend=published_legend(orient="bottom", direction="vertical"),
        ),
        tooltip=tooltip(
            series="Published",
            world_size="Devices",
            images_per_second="Images/s",
            source="Source",
        ),
    )
    return alt.layer(
        base.mark_line(strokeWidth=1, strokeDash=[1.5, 3]),
        base.mark_point(
            shape="diamond", size=70, filled=False, strokeWidth=1.5, opacity=1
        ),
    )
