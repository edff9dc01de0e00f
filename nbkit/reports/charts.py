"""The shapes of all charts: values with intervals, lines, ratios, published points.

Measured, projected and published never share a mark: measured is a filled circle or
bar, with a line for its interval, and published a hollow diamond. Charts have a white
background, so that they read the same on paper and in a dark notebook. Only features
that Vega-Lite 5.6 has are used: the renderer built into JupyterLab 4 has that version,
and it needs no network.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import altair as alt
import vl_convert

from nbkit.statistics import Summary

# Okabe and Ito's colours, distinct in every common kind of colour vision, in an
# order that keeps neighbours far apart: https://jfly.uni-koeln.de/color/
MEASURED_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"]
# Darker and duller than the measured ones: context, not the subject.
PUBLISHED_COLOURS = ["#6B6B6B", "#8C6D31", "#7B4173", "#4F6B3A", "#843C39", "#3A5A78"]
# For every further six series, which have the colours of the first six again.
_SHAPES = ["circle", "square", "triangle-up", "cross"]
_DASHES = [[1, 0], [6, 3], [2, 2], [8, 2, 2, 2]]

_BELOW: dict[str, Any] = {"orient": "bottom", "direction": "vertical"}
FURTHEST = 1.5
"""An interval is cut this many times beyond the points: two noisy runs have one of ten
times their distance, which would press everything else together."""
_WIDTH, _HEIGHT = 520, 320
_LINE_HEIGHT = 26
_TEXTS = {"arm", "component", "label", "series", "size", "source"}
"""Fields that are not numbers."""

_VEGALITE_VERSION = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])

Rows = Sequence[Mapping[str, Any]]
Channel = TypeVar("Channel", alt.X, alt.Y)


def png(chart: alt.LayerChart | alt.Chart, scale: float = 2) -> bytes:
    """Return a chart as a PNG picture, for viewers that run no JavaScript."""
    return vl_convert.vegalite_to_png(
        chart.to_dict(), vl_version=_VEGALITE_VERSION, scale=scale
    )


def finished(
    groups: Sequence[alt.Chart | alt.LayerChart],
    title: str,
    subtitle: str,
    *,
    arms: int = 0,
    height: int = _HEIGHT,
) -> alt.LayerChart:
    """Return one chart of groups that have their own legends, a line for each arm."""
    chart = alt.layer(*groups).resolve_scale(
        color="independent", shape="independent", strokeDash="independent"
    )
    # In one call: each one copies every layer twice.
    return chart.properties(
        width=_WIDTH,
        height=_LINE_HEIGHT * arms or height,
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


def interval_subtitle(
    rows: Rows,
    statistic: str = "median over runs",
    *,
    is_cpu: bool = False,
    is_cut: bool = False,
) -> str:
    """Return which statistic of how many runs is shown, and what the bars are."""
    counts = sorted({row["runs"] for row in rows})
    n = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    bars = "no CI" if all(row["low"] is None for row in rows) else "error bars: 95% CI"
    cut = ", clipped at the chart's edge" if is_cut else ""
    cpu = "CPU smoke test; " if is_cpu else ""
    return f"{cpu}{statistic}, n={n}; {bars}{cut}"


# Axes and colours


def arm_axis(rows: Rows, field: str = "arm") -> alt.Y:
    """Return an axis with a line for each arm."""
    axis = alt.Axis(labelLimit=420, grid=True, gridColor="#F0F0F0", ticks=False)
    return alt.Y(f"{field}:N", sort=_names(rows, field), title=None, axis=axis)


def value_axis(largest: float) -> alt.Axis:
    """Return an axis from 0 whose labels have the digits that the largest deserves."""
    digits = 0 if largest >= 10 else 1 if largest >= 1 else 2
    if 0 < largest < 0.05:  # with two, neighbouring ticks would have one label
        digits = math.ceil(-math.log10(largest / 5))
    return alt.Axis(format=f",.{digits}f", gridColor="#E6E6E6", tickCount=6)


def rate_axis(
    channel: type[Channel],
    scale: alt.Scale,
    highest: float,
    title: str = "Images per second",
) -> Channel:
    """Return an axis of images per second."""
    return channel(
        "images_per_second:Q", title=title, axis=value_axis(highest), scale=scale
    )


def rate_cells(rate: Summary) -> dict[str, Any]:
    """Return a rate and its interval as fields of a row."""
    return {
        "images_per_second": rate.median,
        "low": rate.ci_low,
        "high": rate.ci_high,
        "runs": rate.n,
    }


def value_scale(
    points: Sequence[float], rows: Rows, *, room: float = 1.05
) -> tuple[alt.Scale, bool]:
    """Return the scale from 0 on, and whether it cuts the interval of a row."""
    ends = [row["high"] for row in rows if row["high"] is not None]
    furthest = FURTHEST * max(points)
    is_cut = any(end > furthest for end in ends)
    highest = furthest if is_cut else room * max([*points, *ends])
    return alt.Scale(domain=[0, highest], nice=False), is_cut


def measured_colour(rows: Rows, field: str = "series", **legend: Any) -> alt.Color:
    """Return a colour for each measured series, and their legend: filled circles."""
    return alt.Color(
        f"{field}:N",
        scale=alt.Scale(domain=_names(rows, field), range=MEASURED_COLOURS),
        legend=alt.Legend(
            title="Measured",
            symbolType="circle",
            symbolOpacity=1,
            symbolStrokeWidth=0,
            symbolSize=90,
            **legend,
        ),
    )


def tooltip(**titles: str) -> list[alt.Tooltip]:
    """Return a line for each field, with its title."""
    return [
        alt.Tooltip(field, title=title, type="nominal")
        if field in _TEXTS
        else alt.Tooltip(field, title=title, type="quantitative", format=",.5~r")
        for field, title in titles.items()
    ]


def _names(rows: Rows, field: str) -> list[str]:
    return list(dict.fromkeys(row[field] for row in rows))


# Shapes


def intervals(
    rows: Rows,
    place: alt.X | alt.Y,
    value: alt.X | alt.Y,
    colour: alt.Color,
    titles: Mapping[str, str],
    *,
    interval: tuple[str, str] = ("95% CI from", "95% CI to"),
    has_line: bool = False,
    note: str | None = None,
    **channels: Any,
) -> alt.LayerChart:
    """Draw each row as a circle on a bar from its ``low`` to its ``high``.

    ``value`` has a scale with a domain. ``has_line`` connects the circles, and ``note``
    is the field of what stands beside them.
    """
    shown = tooltip(**titles, low=interval[0], high=interval[1])
    base = alt.Chart(alt.Data(values=list(rows))).encode(
        place, colour, tooltip=shown, **channels
    )
    low, end = value.copy(), alt.X2 if isinstance(value, alt.X) else alt.Y2
    low["shorthand"] = "low:Q"
    # A renderer does not draw a bar that is 10^15 times as long as the chart.
    limit = 2 * value["scale"]["domain"][1]
    bars = base.transform_filter("isValid(datum.low)").transform_calculate(
        end=f"min(datum.high, {limit})"
    )
    layers = [
        bars.mark_rule(strokeWidth=1.5, clip=True).encode(low, end("end:Q")),
        base.mark_circle(size=75, opacity=1).encode(value),
    ]
    if has_line:
        layers.insert(0, base.mark_line(strokeWidth=2).encode(value))
    if note is not None:
        text = base.mark_text(align="left", dx=10, dy=-8, fontSize=11)
        ink = alt.value("#A00000")
        layers.append(text.encode(value, text=f"{note}:N", color=ink))
    return alt.layer(*layers)


def lines(
    rows: Rows,
    x: alt.X,
    y: alt.Y,
    titles: Mapping[str, str],
    *,
    field: str = "series",
    **channels: Any,
) -> alt.LayerChart:
    """Draw a line with points for each series.

    Series that are more than there are colours differ in shape and dash.
    """
    names = _names(rows, field)
    base = alt.Chart(alt.Data(values=list(rows))).encode(
        x, y, measured_colour(rows, field), tooltip=tooltip(**titles), **channels
    )
    line, points = base.mark_line(strokeWidth=1.5), base.mark_circle(size=40, opacity=1)
    if len(names) > len(MEASURED_COLOURS):
        groups = [n // len(MEASURED_COLOURS) % len(_SHAPES) for n in range(len(names))]
        dashes = alt.Scale(domain=names, range=[_DASHES[n] for n in groups])
        shapes = alt.Scale(domain=names, range=[_SHAPES[n] for n in groups])
        line = line.encode(
            strokeDash=alt.StrokeDash(f"{field}:N", scale=dashes, title="Measured")
        )
        points = base.mark_point(filled=True, size=40, opacity=1).encode(
            shape=alt.Shape(f"{field}:N", scale=shapes, title="Measured")
        )
    return alt.layer(line, points)


def reference_line(value: alt.X | alt.Y, number: float) -> alt.Chart:
    """Draw a dashed line at a value."""
    field = str(value["shorthand"]).removesuffix(":Q")
    rule = alt.Chart(alt.Data(values=[{field: number}]))
    return rule.mark_rule(strokeDash=[6, 4], color="#555555").encode(value)


def demand(
    rows: Rows, value: alt.X | alt.Y, title: str, x: alt.X | None = None
) -> alt.Chart:
    """Draw what GPUs ask for as a dashed line, over the devices ``x`` if given."""
    legend = alt.Legend(
        title=title, symbolType="stroke", symbolDash=[6, 3], symbolStrokeWidth=2
    )
    colour = alt.Color(
        "series:N", scale=alt.Scale(range=PUBLISHED_COLOURS[:1]), legend=legend
    )
    field = str(value["shorthand"]).removesuffix(":Q")
    shown = tooltip(series="Demand of", **{field: "Images/s"}, source="Source")
    base = alt.Chart(alt.Data(values=list(rows))).encode(value, colour, tooltip=shown)
    if x is None:
        return base.mark_rule(strokeDash=[6, 3], strokeWidth=2)
    return base.mark_line(strokeDash=[6, 3], strokeWidth=2).encode(x)


def published_points(
    rows: Rows,
    x: alt.X,
    y: alt.Y,
    titles: Mapping[str, str],
    *,
    has_line: bool = False,
) -> alt.LayerChart:
    """Draw published results: hollow diamonds, a colour for each series."""
    colours = alt.Scale(domain=_names(rows, "series"), range=PUBLISHED_COLOURS)
    legend = alt.Legend(
        title="Published by others",
        symbolType="diamond",
        symbolFillColor="white",
        symbolStrokeWidth=1.5,
        symbolSize=90,
        **_BELOW,
    )
    base = alt.Chart(alt.Data(values=list(rows))).encode(
        x,
        y,
        alt.Color("series:N", scale=colours, legend=legend),
        tooltip=tooltip(**titles),
    )
    points = base.mark_point(
        shape="diamond", size=70, filled=False, strokeWidth=1.5, opacity=1
    )
    line = base.mark_line(strokeWidth=1, strokeDash=[1.5, 3])
    return alt.layer(line, points) if has_line else alt.layer(points)


def ratio_chart(
    measured: Rows,
    published: Rows,
    *,
    field: str,
    axis: str,
    titles: Mapping[str, str],
    statistic: str,
    is_cpu: bool,
    title: str,
) -> alt.LayerChart:
    """Draw measured ratios with their intervals and published ones; 1 is equal."""
    rows = [*measured, *published]
    points = [1.0, *(row[field] for row in rows)]
    ends = [end for row in measured for end in (row["low"], row["high"]) if end]
    low = max(min([*points, *ends]), min(points) / FURTHEST)
    high = min(max([*points, *ends]), max(points) * FURTHEST)
    margin = 0.06 * (high - low) or 0.1
    x = alt.X(
        f"{field}:Q",
        title=axis,
        axis=alt.Axis(format=".2~f", gridColor="#E6E6E6", tickCount=6),
        scale=alt.Scale(domain=[low - margin, high + margin], nice=False, zero=False),
    )
    y = arm_axis(rows)
    groups: list[Any] = [reference_line(x, 1.0)]
    texts = []
    if measured:
        colour = measured_colour(measured, **_BELOW)
        groups.append(intervals(measured, y, x, colour, titles))
        is_cut = any(end < low or end > high for end in ends)
        statistic = f"measured: {statistic}"
        texts.append(
            interval_subtitle(measured, statistic, is_cpu=is_cpu, is_cut=is_cut)
        )
    if published:
        names = {"arm": "Published", "series": "By", field: axis, "source": "Source"}
        groups.append(published_points(published, x, y, names))
        texts.append("published: one number each, no CI")
    return finished(groups, title, "; ".join(texts), arms=len(_names(rows, "arm")))
