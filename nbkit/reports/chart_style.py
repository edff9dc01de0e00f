"""What all charts have in common: colours, sizes, ink.

Charts have a white background, so that they read the same on paper and in
a dark notebook. Only features that Vega-Lite 5.6 has are used: the renderer built into
JupyterLab 4 has that version, and it needs no network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

# Okabe and Ito's colours, distinct in every common kind of colour vision, in an
# order that keeps neighbours far apart: https://jfly.uni-koeln.de/color/
MEASURED_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"]
# Darker and duller than the measured ones: context, not the subject.
PUBLISHED_COLOURS = ["#6B6B6B", "#8C6D31", "#7B4173", "#4F6B3A", "#843C39", "#3A5A78"]
# For every further six series, which have the colours of the first six again.
_SHAPES = ["circle", "square", "triangle-up", "cross"]
_DASHES = [[1, 0], [6, 3], [2, 2], [8, 2, 2, 2]]

_WIDTH, _HEIGHT = 520, 320
_TEXTS = {"arm", "label", "series", "size", "source"}  # fields that are not numbers


def finished(
    chart: alt.LayerChart, title: str, subtitle: str, *, height: int = _HEIGHT
) -> alt.LayerChart:
    """Return the chart with its title, in the size and ink of all charts."""
    # In one call: each one copies every layer twice.
    return chart.properties(
        width=_WIDTH,
        height=height,
        title=alt.TitleParams(
            title, subtitle=subtitle, anchor="start", fontSize=15, offset=12
        ),
        background="white",
        padding=12,
        config=alt.Config(
            view=alt.ViewConfig(stroke=None),
            axis=alt.AxisConfig(
                labelFontSize=12,
                titleFontSize=12,
                labelColor="#222222",
                titleColor="#222222",
                domainColor="#888888",
                tickColor="#888888",
            ),
            title=alt.TitleConfig(
                color="#111111", subtitleColor="#444444", subtitleFontSize=12
            ),
            legend=alt.LegendConfig(
                labelFontSize=12,
                titleFontSize=12,
                labelColor="#222222",
                titleColor="#222222",
                labelLimit=0,
            ),
        ),
    )


def measured_legend(**more: Any) -> alt.Legend:
    """Return the legend of what was measured: filled circles."""
    return alt.Legend(
        title="Measured",
        symbolType="circle",
        symbolOpacity=1,
        symbolStrokeWidth=0,
        symbolSize=90,
        **more,
    )


def beyond_colours(series: Sequence[str]) -> dict[str, Any]:
    """Return what tells series apart that are more than there are colours."""
    if len(series) <= len(MEASURED_COLOURS):
        return {}
    groups = [n // len(MEASURED_COLOURS) % len(_SHAPES) for n in range(len(series))]
    shapes, dashes = ([kinds[n] for n in groups] for kinds in (_SHAPES, _DASHES))
    return {
        "shape": alt.Shape(
            "series:N", scale=alt.Scale(domain=series, range=shapes), title="Measured"
        ),
        "strokeDash": alt.StrokeDash(
            "series:N", scale=alt.Scale(domain=series, range=dashes), title="Measured"
        ),
    }


def published_legend(**more: Any) -> alt.Legend:
    """Return the legend of published results: hollow diamonds."""
    return alt.Legend(
        title="Published by others",
        symbolType="diamond",
        symbolFillColor="white",
        symbolStrokeWidth=1.5,
        symbolSize=90,
        **more,
    )


def published_points(
    rows: Sequence[Mapping[str, Any]],
    x: alt.X,
    y: alt.Y,
    titles: Mapping[str, str],
    legend: alt.Legend | None = None,
) -> alt.Chart:
    """Return published results: hollow diamonds, a colour for each series."""
    series = list(dict.fromkeys(row["series"] for row in rows))
    colours = alt.Scale(domain=series, range=PUBLISHED_COLOURS[: len(series)])
    return (
        alt.Chart(alt.Data(values=list(rows)))
        .mark_point(shape="diamond", size=70, filled=False, strokeWidth=1.5, opacity=1)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "series:N", scale=colours, legend=legend or published_legend()
            ),
            tooltip=tooltip(**titles),
        )
    )


def with_intervals(chart: alt.Chart, limit: float) -> alt.Chart:
    """Return the rows that have an interval, from ``low`` to ``end``."""
    return chart.transform_filter("isValid(datum.low)").transform_calculate(
        end=f"min(datum.high, {limit})"
    )


def value_axis(largest: float) -> alt.Axis:
    """Return an axis from 0 whose labels have the digits that the largest deserves."""
    digits = 0 if largest >= 10 else 1 if largest >= 1 else 2
    if 0 < largest < 0.05:  # with two, neighbouring ticks would have one label
        digits = math.ceil(-math.log10(largest / 5))
    return alt.Axis(format=f",.{digits}f", gridColor="#E6E6E6", tickCount=6)


def tooltip(**titles: str) -> list[alt.Tooltip]:
    """Return a line for each field, with its title."""
    return [
        alt.Tooltip(field, title=title, type="nominal")
        if field in _TEXTS
        else alt.Tooltip(field, title=title, type="quantitative", format=",.5~r")
        for field, title in titles.items()
    ]
