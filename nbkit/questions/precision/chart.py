"""Chart of arms: each one's rate with its interval, one line an arm.

Measured is a filled circle with its interval, published by others a hollow diamond, and
the legend says so. An arm whose answer is suspect says it beside its circle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import altair as alt

from nbkit.questions.precision.sentence import MeasuredArm
from nbkit.references.rows import PublishedRow
from nbkit.reports.chart_style import (
    MEASURED_COLOURS,
    finished,
    measured_legend,
    published_points,
    tooltip,
    value_axis,
    with_intervals,
)

_LINE_HEIGHT = 26
_MOST_ABOVE_EVERYTHING = 1.5
"""Two noisy runs have an interval of ten times their distance: the chart is cut."""


def arms_chart(
    arms: Sequence[MeasuredArm],
    published: Mapping[str, Sequence[PublishedRow]],
    *,
    device_type: Literal["cuda", "cpu"],
    title: str = "Training throughput by precision and layout",
) -> alt.LayerChart:
    """Draw images per second of every arm."""
    values = [_measured(arm) for arm in arms]
    published_values = _published(published)
    points = [row["images_per_second"] for row in [*values, *published_values]]
    ends = [row["high"] for row in values if row["high"] is not None]
    largest = _MOST_ABOVE_EVERYTHING * max(points)
    is_cut = any(end > largest for end in ends)
    # A caveat is written to the right of its circle.
    room = 1.25 if any(row["caveat"] for row in values) else 1.05
    highest = largest if is_cut else room * max([*points, *ends])
    y = alt.Y(
        "arm:N",
        sort=[arm.arm for arm in arms],
        title=None,
        axis=alt.Axis(labelLimit=300, grid=True, gridColor="#F0F0F0", ticks=False),
    )
    x = alt.X(
        "images_per_second:Q",
        title="Images per second",
        axis=value_axis(max(points)),
        scale=alt.Scale(domain=[0, highest], nice=False),
    )
    layers: list[Any] = [alt.layer(*_measured_layers(values, x, y, 2 * highest))]
    if published_values:
        titles = {"series": "Published", "images_per_second": "Images/s"}
        titles |= {"source": "Source"}
        layers.append(published_points(published_values, x, y, titles))
    chart = alt.layer(*layers).resolve_scale(color="independent")
    height = _LINE_HEIGHT * len(arms)
    return finished(
        chart, title, _subtitle(arms, device_type, is_cut=is_cut), height=height
    )


def _measured(arm: MeasuredArm) -> dict[str, Any]:
    rate = arm.images_per_second
    return {
        "arm": arm.arm,
        "precision": arm.format.precision,
        "images_per_second": rate.median,
        "low": rate.ci_low,
        "high": rate.ci_high,
        "runs": rate.n,
        "ratio": arm.against.estimate if arm.against else 1.0,
        "caveat": arm.answer.caveat,
    }


def _published(published: Mapping[str, Sequence[PublishedRow]]) -> list[dict[str, Any]]:
    return [
        {
            "arm": arm,
            "series": row.publisher,
            "images_per_second": row.images_per_second,
            "source": row.source,
        }
        for arm, rows in published.items()
        for row in rows
    ]


def _measured_layers(
    values: Sequence[Mapping[str, Any]], x: alt.X, y: alt.Y, limit: float
) -> list[alt.Chart]:
    precisions = list(dict.fromkeys(value["precision"] for value in values))
    base = alt.Chart(alt.Data(values=list(values))).encode(
        y=y,
        color=alt.Color(
            "precision:N",
            scale=alt.Scale(domain=precisions, range=MEASURED_COLOURS),
            legend=measured_legend(),
        ),
        tooltip=tooltip(
            arm="Measured",
            images_per_second="Images/s",
            low="95% CI from",
            high="95% CI to",
            runs="Runs",
            ratio="vs. baseline",
        ),
    )
    with_interval = with_intervals(base, limit)
    caps = with_interval.mark_tick(
        orient="vertical", thickness=1.5, size=10, opacity=1, clip=True
    )
    return [
        with_interval.mark_rule(strokeWidth=1.5, clip=True).encode(
            x=alt.X("low:Q", title="Images per second"), x2="end:Q"
        ),
        caps.encode(x="low:Q"),
        caps.encode(x="end:Q"),
        base.mark_circle(size=75, opacity=1).encode(x=x),
        base.transform_filter("datum.caveat")
        .mark_text(align="left", dx=10, dy=-8, fontSize=11, fontWeight="bold")
        .encode(x=x, text="caveat:N", color=alt.value("#A00000")),
    ]


def _subtitle(arms: Sequence[MeasuredArm], device_type: str, *, is_cut: bool) -> str:
    counts = [arm.images_per_second.n for arm in arms]
    fewest, most = min(counts), max(counts)
    counted = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    bars = "bars: 95% CI" if most > 1 else "no CI"
    cut = ", clipped at the chart's edge" if is_cut else ""
    text = f"median over runs, n={counted}; {bars}{cut}"
    return f"CPU smoke test; {text}" if device_type == "cpu" else text
