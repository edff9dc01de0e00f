"""Charts of inference: throughput and latency by batch size, a colour a format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from nbkit.questions.inference.latency import Served
from nbkit.references.rows import PublishedRow
from nbkit.reports.charts import (
    FURTHEST,
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

_PERCENTILES = {"p50": "p50_seconds", "p95": "p95_seconds", "p99": "p99_seconds"}


def throughput_chart(
    served: Sequence[Served],
    published: Sequence[PublishedRow],
    *,
    is_cpu: bool,
) -> alt.LayerChart:
    """Draw images per second against batch size, a line a format."""
    values = [
        {
            "arm": arm.arm,
            "batch_size": arm.batch_size,
            **rate_cells(arm.images_per_second),
            "ratio": arm.against.estimate if arm.against else 1.0,
        }
        for arm in served
        if not arm.is_control
    ]
    sizes = sorted({row["batch_size"] for row in values})
    others = [_published(row) for row in published if row.batch_size_per_gpu in sizes]
    points: list[float] = [row["images_per_second"] for row in [*values, *others]]
    scale, is_cut = value_scale(points, values)
    x = _batch_sizes(sizes)
    y = rate_axis(alt.Y, scale, max(points))
    rate = {"batch_size": "Batch size", "images_per_second": "Images/s"}
    titles = {"arm": "Measured", **rate, "runs": "Runs", "ratio": "vs. baseline"}
    colour = measured_colour(values, "arm")
    groups: list[Any] = [intervals(values, x, y, colour, titles, has_line=True)]
    if others:
        titles = {"series": "Published", **rate, "source": "Source"}
        groups.append(published_points(others, x, y, titles))
    text = interval_subtitle(
        values, "median over process starts", is_cpu=is_cpu, is_cut=is_cut
    )
    if any(row["images"] == "real" for row in others):
        text += "; published rates marked 'images read' include decoding"
    return finished(groups, "Inference throughput by batch size", text)


def latency_chart(served: Sequence[Served], *, is_cpu: bool) -> alt.LayerChart:
    """Draw the latency's percentiles against batch size, formats side by side."""
    own = [arm for arm in served if not arm.is_control]
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
    ranges, is_cut = _ranges(own, values)
    titles = {"arm": "Measured", "batch_size": "Batch size"}
    titles |= {"p50": "p50 (ms)", "p95": "p95 (ms)", "p99": "p99 (ms)"}
    titles |= {"runs": "Runs", "passes": "Passes per run"}
    x = _batch_sizes(sorted({arm.batch_size for arm in own}))
    offset = alt.XOffset("arm:N", sort=list(dict.fromkeys(arm.arm for arm in own)))
    colour = measured_colour(values, "arm")
    behind, base = (
        alt.Chart(alt.Data(values=rows)).encode(x, offset, colour)
        for rows in (ranges, values)
    )
    base = base.encode(tooltip=tooltip(**titles))
    p50, p95, p99, low = (
        alt.Y(
            f"{field}:Q",
            title="Latency of a batch (ms, logarithmic)",
            scale=alt.Scale(type="log", nice=False, padding=16),
            axis=alt.Axis(format="~g", gridColor="#E6E6E6", tickCount=5),
        )
        for field in (*_PERCENTILES, "low")
    )
    chart = alt.layer(
        behind.mark_rule(strokeWidth=9, opacity=0.25).encode(low, y2="end:Q"),
        base.mark_rule(strokeWidth=1.5).encode(p50, y2="highest:Q"),
        *(
            base.transform_filter(f"isValid(datum.{name})")
            .mark_tick(orient="horizontal", thickness=2, size=width, opacity=1)
            .encode(y)
            for name, y, width in (("p95", p95, 8), ("p99", p99, 14))
        ),
        base.mark_circle(size=60, opacity=1).encode(p50),
    )
    text = "circle: p50; short bar: p95; long bar: p99; medians over process starts"
    if ranges:
        cut = ", clipped at the chart's edge" if is_cut else ""
        text += f"; shaded: 95% CI{cut}"
    else:
        text += "; no CI"
    text = f"CPU smoke test; {text}" if is_cpu else text
    return finished([chart], "Inference latency by batch size", text)


def _ranges(
    served: Sequence[Served], values: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], bool]:
    """Return every percentile's interval in ms, and whether one leaves the chart."""
    shown = [row[name] for row in values for name in _PERCENTILES if row[name]]
    lowest = min(shown) / FURTHEST
    highest = max(shown) * FURTHEST
    ranges: list[dict[str, Any]] = []
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
            ranges.append({"arm": arm.arm, "batch_size": arm.batch_size, **ends})
    return ranges, is_cut


def _batch_sizes(sizes: Sequence[int]) -> alt.X:
    return alt.X(
        "batch_size:O",
        sort=list(sizes),
        title="Images in a batch",
        axis=alt.Axis(labelAngle=0, grid=False),
    )


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
