"""Charts of inference: throughput and latency by batch size, a colour a format.

Measured is a filled circle with its interval, published by others a hollow diamond, and
the legend says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import altair as alt

from nbkit.questions.inference.latency import Served
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

_MOST_ABOVE_EVERYTHING = 1.5
"""Two noisy runs have an interval of ten times their distance: the chart is cut."""

_PERCENTILES = {"p50": "p50_seconds", "p95": "p95_seconds", "p99": "p99_seconds"}


def throughput_chart(
    served: Sequence[Served],
    published: Sequence[PublishedRow],
    *,
    device_type: Literal["cuda", "cpu"],
) -> alt.LayerChart:
    """Draw images per second against batch size, a line a format."""
    own = [arm for arm in served if not arm.is_control]
    sizes = sorted({arm.batch_size for arm in own})
    values = [_rate(arm) for arm in own]
    published_values = [
        _published(row) for row in published if row.batch_size_per_gpu in sizes
    ]
    points = [row["images_per_second"] for row in [*values, *published_values]]
    ends = [row["high"] for row in values if row["high"] is not None]
    largest = _MOST_ABOVE_EVERYTHING * max(points)
    is_cut = any(end > largest for end in ends)
    highest = largest if is_cut else 1.05 * max([*points, *ends])
    x = _batch_sizes(sizes)
    y = alt.Y(
        "images_per_second:Q",
        title="Images per second",
        axis=value_axis(max(points)),
        scale=alt.Scale(domain=[0, highest], nice=False),
    )
    base = alt.Chart(alt.Data(values=values)).encode(
        x=x,
        color=_colour(own),
        tooltip=tooltip(
            arm="Measured",
            batch_size="Batch size",
            images_per_second="Images/s",
            low="95% CI from",
            high="95% CI to",
            runs="Runs",
            ratio="vs. baseline",
        ),
    )
    with_interval = with_intervals(base, 2 * highest)
    caps = with_interval.mark_tick(
        orient="horizontal", thickness=1.5, size=10, opacity=1, clip=True
    )
    own_layer = alt.layer(
        base.mark_line(strokeWidth=2).encode(y=y),
        with_interval.mark_rule(strokeWidth=1.5, clip=True).encode(
            y=alt.Y("low:Q", title="Images per second"), y2="end:Q"
        ),
        caps.encode(y="low:Q"),
        caps.encode(y="end:Q"),
        base.mark_circle(size=75, opacity=1).encode(y=y),
    )
    layers: list[Any] = [own_layer]
    if published_values:
        titles = {"series": "Published", "batch_size": "Batch size"}
        titles |= {"images_per_second": "Images/s", "source": "Source"}
        layers.append(published_points(published_values, x, y, titles))
    chart = alt.layer(*layers).resolve_scale(color="independent")
    title = "Inference throughput by batch size"
    text = _subtitle(own, device_type, is_cut=is_cut)
    if any(row["images"] == "real" for row in published_values):
        text += "; published rates with 'images read' include decoding"
    return finished(chart, title, text)


def latency_chart(
    served: Sequence[Served], *, device_type: Literal["cuda", "cpu"]
) -> alt.LayerChart:
    """Draw the latency's percentiles against batch size, formats side by side."""
    own = [arm for arm in served if not arm.is_control]
    arms = list(dict.fromkeys(arm.arm for arm in own))
    values = [
        {
            "arm": arm.arm,
            "batch_size": arm.batch_size,
            "runs": arm.images_per_second.n,
            "passes": arm.passes,
            **{name: _milliseconds(arm, field) for name, field in _PERCENTILES.items()},
        }
        for arm in own
    ]
    for row in values:
        known = [row[name] for name in _PERCENTILES if row[name] is not None]
        row["highest"] = max(known)
    intervals, is_cut = _intervals(own, values)
    title = "Latency of a batch (ms, logarithmic)"
    base = alt.Chart(alt.Data(values=values)).encode(
        x=_batch_sizes(sorted({arm.batch_size for arm in own})),
        xOffset=alt.XOffset("arm:N", sort=arms),
        color=_colour(own),
        tooltip=tooltip(
            arm="Measured",
            batch_size="Batch size",
            p50="p50 (ms)",
            p95="p95 (ms)",
            p99="p99 (ms)",
            runs="Runs",
            passes="Passes per run",
        ),
    )
    behind = alt.Chart(alt.Data(values=intervals)).encode(
        x=_batch_sizes(sorted({arm.batch_size for arm in own})),
        xOffset=alt.XOffset("arm:N", sort=arms),
        color=_colour(own),
    )
    scale = alt.Scale(type="log", nice=False, padding=16)
    y = alt.Y(
        "p50:Q",
        title=title,
        scale=scale,
        axis=alt.Axis(format="~g", gridColor="#E6E6E6", tickCount=5),
    )
    ticks = {"p95": 8, "p99": 14}
    chart = alt.layer(
        behind.mark_rule(strokeWidth=9, opacity=0.25).encode(
            y=alt.Y("low:Q", title=title, scale=scale), y2="end:Q"
        ),
        base.mark_rule(strokeWidth=1.5).encode(y=y, y2="highest:Q"),
        *(
            base.transform_filter(f"isValid(datum.{name})")
            .mark_tick(orient="horizontal", thickness=2, size=width, opacity=1)
            .encode(y=alt.Y(f"{name}:Q", title=title, scale=scale))
            for name, width in ticks.items()
        ),
        base.mark_circle(size=60, opacity=1).encode(y=y),
    )
    text = "circle: p50; short bar: p95; long bar: p99; medians over process starts"
    if intervals:
        cut = ", cut" if is_cut else ""
        text += f"; shaded: 95% CI{cut}"
    else:
        text += "; no CI from a single run"
    text = f"CPU; {text}" if device_type == "cpu" else text
    return finished(chart, "Inference latency by batch size", text)


def _intervals(
    served: Sequence[Served], values: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], bool]:
    """Return every percentile's interval in ms, and whether one leaves the chart."""
    shown = [row[name] for row in values for name in _PERCENTILES if row[name]]
    lowest = min(shown) / _MOST_ABOVE_EVERYTHING
    highest = max(shown) * _MOST_ABOVE_EVERYTHING
    intervals: list[dict[str, Any]] = []
    is_cut = False
    for arm in served:
        for field in _PERCENTILES.values():
            summary = getattr(arm, field)
            if summary is None or summary.ci_low is None or summary.ci_high is None:
                continue
            low, high = 1e3 * summary.ci_low, 1e3 * summary.ci_high
            is_cut = is_cut or low < lowest or high > highest
            # A logarithm has no place for what two noisy runs put below zero.
            ends = {"low": max(low, lowest), "end": min(high, highest)}
            intervals.append({"arm": arm.arm, "batch_size": arm.batch_size, **ends})
    return intervals, is_cut


def _batch_sizes(sizes: Sequence[int]) -> alt.X:
    return alt.X(
        "batch_size:O",
        sort=list(sizes),
        title="Images in a batch",
        axis=alt.Axis(labelAngle=0, grid=False),
    )


def _colour(served: Sequence[Served]) -> alt.Color:
    arms = list(dict.fromkeys(arm.arm for arm in served))
    return alt.Color(
        "arm:N",
        scale=alt.Scale(domain=arms, range=MEASURED_COLOURS),
        legend=measured_legend(),
    )


def _rate(arm: Served) -> dict[str, Any]:
    rate = arm.images_per_second
    return {
        "arm": arm.arm,
        "batch_size": arm.batch_size,
        "images_per_second": rate.median,
        "low": rate.ci_low,
        "high": rate.ci_high,
        "runs": rate.n,
        "ratio": arm.against.estimate if arm.against else 1.0,
    }


def _milliseconds(arm: Served, field: str) -> float | None:
    seconds = getattr(arm, field)
    return None if seconds is None else 1e3 * seconds.median


def _published(row: PublishedRow) -> dict[str, Any]:
    read = ", images read" if row.data == "real" else ""
    return {
        "series": f"{row.publisher}, {row.precision}{read}",
        "images": row.data,
        "batch_size": row.batch_size_per_gpu,
        "images_per_second": row.images_per_second,
        "source": row.source,
    }


def _subtitle(served: Sequence[Served], device_type: str, *, is_cut: bool) -> str:
    counts = [arm.images_per_second.n for arm in served]
    fewest, most = min(counts), max(counts)
    counted = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    bars = "bars: 95% CI" if most > 1 else "no CI from a single run"
    cut = ", clipped at the chart's edge" if is_cut else ""
    text = f"median over process starts, n={counted}; {bars}{cut}"
    return f"CPU; {text}" if device_type == "cpu" else text
