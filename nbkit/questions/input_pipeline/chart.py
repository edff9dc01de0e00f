"""Charts of input pipelines: what each one delivers, against what devices ask for.

Measured is a filled circle with its interval. What devices ask for is a dashed line;
the legend says whether that was measured, or emulated from published rates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from nbkit.reports.chart_style import (
    MEASURED_COLOURS,
    PUBLISHED_COLOURS,
    finished,
    measured_legend,
    tooltip,
    value_axis,
    with_intervals,
)
from nbkit.statistics import Summary

_LINE_HEIGHT = 26
_MOST_ABOVE_EVERYTHING = 1.5
"""Two noisy runs have an interval of ten times their distance: the chart is cut."""


@dataclass(frozen=True)
class MeasuredPipeline:
    """One arm."""

    arm: str
    series: str
    """What has one colour."""
    world_size: int
    images_per_second: Summary
    """Over runs, all devices together."""
    data_wait_share: float | None


@dataclass(frozen=True)
class DemandLine:
    """What the devices would compute if they never waited."""

    series: str
    """Which devices, for the legend."""
    is_emulated: bool
    images_per_second: dict[int, float]
    """By number of devices."""


def pipelines_chart(
    arms: Sequence[MeasuredPipeline], demand: DemandLine | None, *, title: str
) -> alt.LayerChart:
    """Draw images per second of every arm, all at one number of devices."""
    size = arms[0].world_size
    asked = None if demand is None else demand.images_per_second.get(size)
    values = [_measured(arm) for arm in arms]
    highest = _highest(values, [asked])
    y = alt.Y(
        "arm:N",
        sort=[arm.arm for arm in arms],
        title=None,
        axis=alt.Axis(labelLimit=300, grid=True, gridColor="#F0F0F0", ticks=False),
    )
    x = alt.X(
        "images_per_second:Q",
        title="Images per second",
        axis=value_axis(highest),
        scale=alt.Scale(domain=[0, 1.12 * highest], nice=False),
    )
    layers: list[Any] = [alt.layer(*_circles(values, x, y, horizontal=True))]
    if demand is not None and asked is not None:
        line = alt.Chart(alt.Data(values=[_asked(demand, size, asked)]))
        layers.append(
            line.mark_rule(strokeDash=[6, 3], strokeWidth=2).encode(
                x=x, color=_demand_colour(demand), tooltip=_demand_tooltip()
            )
        )
    chart = alt.layer(*layers).resolve_scale(color="independent")
    height = _LINE_HEIGHT * len(arms)
    return finished(chart, title, _subtitle(arms, 1.12 * highest), height=height)


def devices_chart(
    arms: Sequence[MeasuredPipeline],
    demand: DemandLine | None,
    *,
    device: str,
    title: str,
) -> alt.LayerChart:
    """Draw images per second of a few pipelines against the number of devices."""
    values = [_measured(arm) for arm in arms]
    asked = {} if demand is None else demand.images_per_second
    highest = _highest(values, list(asked.values()))
    sizes = sorted({arm.world_size for arm in arms})
    x = alt.X(
        "world_size:Q",
        title=device[:1].upper() + device[1:],
        axis=alt.Axis(values=sizes, format="d", grid=False),
        scale=alt.Scale(domain=[0, sizes[-1] * 1.1], nice=False),
    )
    y = alt.Y(
        "images_per_second:Q",
        title="Images per second",
        axis=value_axis(highest),
        scale=alt.Scale(domain=[0, 1.05 * highest], nice=False),
    )
    layers: list[Any] = [alt.layer(*_circles(values, x, y, horizontal=False))]
    if demand is not None:
        points = [_asked(demand, size, asked[size]) for size in sizes if size in asked]
        line = alt.Chart(alt.Data(values=points))
        layers.append(
            line.mark_line(strokeDash=[6, 3], strokeWidth=2).encode(
                x=x, y=y, color=_demand_colour(demand), tooltip=_demand_tooltip()
            )
        )
    chart = alt.layer(*layers).resolve_scale(color="independent")
    return finished(chart, title, _subtitle(arms, 1.05 * highest))


def _measured(one: MeasuredPipeline) -> dict[str, Any]:
    rate, wait = one.images_per_second, one.data_wait_share
    return {
        "arm": one.arm,
        "series": one.series,
        "world_size": one.world_size,
        "images_per_second": rate.median,
        "low": rate.ci_low,
        "high": rate.ci_high,
        "runs": rate.n,
        "data_wait_percent": None if wait is None else 100 * wait,
        "note": "" if wait is None else f"waits {100 * wait:.0f}%",
    }


def _asked(demand: DemandLine, size: int, rate: float) -> dict[str, Any]:
    return {
        "series": demand.series,
        "world_size": size,
        "images_per_second": rate,
    }


def _highest(values: Sequence[dict[str, Any]], asked: Sequence[float | None]) -> float:
    points = [row["images_per_second"] for row in values]
    points += [rate for rate in asked if rate is not None]
    ends = [row["high"] for row in values if row["high"] is not None]
    return min(max([*points, *ends]), _MOST_ABOVE_EVERYTHING * max(points))


def _circles(
    values: Sequence[dict[str, Any]], x: alt.X, y: alt.Y, *, horizontal: bool
) -> list[Any]:
    series = list(dict.fromkeys(value["series"] for value in values))
    base = alt.Chart(alt.Data(values=list(values))).encode(
        color=alt.Color(
            "series:N",
            scale=alt.Scale(domain=series, range=MEASURED_COLOURS),
            legend=measured_legend(),
        ),
        tooltip=tooltip(
            arm="Measured",
            images_per_second="Images/s",
            low="95% CI from",
            high="95% CI to",
            runs="n",
            data_wait_percent="Data wait, %",
        ),
    )
    limit = 10 * max(row["images_per_second"] for row in values)
    with_interval = with_intervals(base, limit)
    if horizontal:
        bars = with_interval.mark_rule(strokeWidth=1.5, clip=True).encode(
            x=alt.X("low:Q", title="Images per second"), x2="end:Q", y=y
        )
        notes = base.mark_text(align="left", dx=9, dy=-8, fontSize=11).encode(
            x=x, y=y, text="note:N", color=alt.value("#444444")
        )
        return [bars, base.mark_circle(size=75, opacity=1).encode(x=x, y=y), notes]
    bars = with_interval.mark_rule(strokeWidth=1.5, clip=True).encode(
        x=x, y=alt.Y("low:Q", title="Images per second"), y2="end:Q"
    )
    lines = base.mark_line(strokeWidth=2).encode(x=x, y=y)
    return [lines, bars, base.mark_circle(size=75, opacity=1).encode(x=x, y=y)]


def _demand_colour(demand: DemandLine) -> alt.Color:
    title = "Demand (emulated GPU)" if demand.is_emulated else "Demand"
    return alt.Color(
        "series:N",
        scale=alt.Scale(domain=[demand.series], range=PUBLISHED_COLOURS[:1]),
        legend=alt.Legend(
            title=title, symbolType="stroke", symbolDash=[6, 3], symbolStrokeWidth=2
        ),
    )


def _demand_tooltip() -> list[alt.Tooltip]:
    return tooltip(series="Demand of", images_per_second="Images/s")


def _subtitle(arms: Sequence[MeasuredPipeline], highest: float) -> str:
    counts = [arm.images_per_second.n for arm in arms]
    fewest, most = min(counts), max(counts)
    counted = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    bars = "bars: 95% CI" if most > 1 else "no CI"
    ends = [arm.images_per_second.ci_high for arm in arms]
    if any(end is not None and end > highest for end in ends):
        bars += ", clipped at the chart's edge"
    return f"median over runs (n={counted}); {bars}"
