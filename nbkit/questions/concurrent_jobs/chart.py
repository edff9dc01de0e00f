"""Chart of concurrent jobs: how much slower each one is than alone, a line a job.

Measured is a filled circle with its interval, published by others a hollow diamond
without one, a diamond for each job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import altair as alt

from nbkit.questions.concurrent_jobs.literature import PublishedRound
from nbkit.questions.concurrent_jobs.slowdown import ConcurrentJob
from nbkit.reports.chart_style import (
    MEASURED_COLOURS,
    finished,
    measured_legend,
    published_legend,
    published_points,
    tooltip,
    with_intervals,
)

_LINE_HEIGHT = 24
_FURTHEST = 2.0
"""An interval is cut this many times beyond the points: two noisy rounds have one that
would press everything else together."""


def slowdown_chart(
    jobs: Mapping[str, Sequence[ConcurrentJob]],
    published: Sequence[PublishedRound],
    *,
    device_type: Literal["cuda", "cpu"],
    title: str = "Slowdown under concurrency",
) -> alt.LayerChart:
    """Draw slowdowns; 1 is as fast as alone."""
    measured = [
        row for setting, many in jobs.items() for row in _measured(setting, many)
    ]
    published_rows = [row for round_ in published for row in _published(round_)]
    points = [1.0, *(row["slowdown"] for row in [*measured, *published_rows])]
    ends = [end for row in measured for end in (row["low"], row["high"]) if end]
    low = max(min([*points, *ends]), min(points) / _FURTHEST)
    high = min(max([*points, *ends]), max(points) * _FURTHEST)
    is_cut = any(end < low or end > high for end in ends)
    margin = 0.06 * (high - low) or 0.1
    scale = alt.Scale(domain=[low - margin, high + margin], nice=False, zero=False)
    lines = list(dict.fromkeys(row["arm"] for row in [*measured, *published_rows]))
    y = alt.Y(
        "arm:N",
        sort=lines,
        title=None,
        axis=alt.Axis(labelLimit=420, grid=True, gridColor="#F0F0F0", ticks=False),
    )
    layers: list[Any] = [_as_alone(scale)]
    if published_rows:
        legend = published_legend(orient="bottom", direction="vertical")
        titles = {"arm": "Published", "series": "By", "slowdown": "Slowdown"}
        titles |= {"source": "Source"}
        place = _x("slowdown", scale)
        layers.append(published_points(published_rows, place, y, titles, legend))
    if measured:
        layers.append(alt.layer(*_measured_layers(measured, scale, y)))
    chart = alt.layer(*layers).resolve_scale(color="independent", shape="independent")
    return finished(
        chart,
        title,
        _subtitle(measured, published_rows, device_type, is_cut=is_cut),
        height=_LINE_HEIGHT * len(lines),
    )


def _measured(setting: str, jobs: Sequence[ConcurrentJob]) -> list[dict[str, Any]]:
    rows = []
    for job in jobs:
        if job.kept is None or job.slowdown is None:
            continue
        slowdown, low, high = job.slowdown
        rows.append(
            {
                "arm": job.arm,
                "series": setting,
                "slowdown": slowdown,
                "low": low,
                "high": high,
                "rounds": job.kept.n_a,
                "alone": job.kept.n_b,
            }
        )
    return rows


def _published(round_: PublishedRound) -> list[dict[str, Any]]:
    return [
        {
            "arm": round_.name,
            "series": f"{round_.rows[0].publisher}, {round_.rows[0].year}",
            "slowdown": slowdown,
            "source": round_.rows[0].source,
        }
        for slowdown in round_.slowdowns or (1 / round_.aggregate_efficiency,)
    ]


def _subtitle(
    measured: Sequence[Mapping[str, Any]],
    others: Sequence[Mapping[str, Any]],
    device_type: str,
    *,
    is_cut: bool,
) -> str:
    parts = []
    if measured:
        several = any(row["low"] is not None for row in measured)
        bars = "bars: 95% CI" if several else "no CI (n=1)"
        cut = ", clipped at the chart's edge" if is_cut else ""
        cpu = "CPU smoke test; " if device_type == "cpu" else ""
        parts.append(f"{cpu}measured: ratio of medians, {bars}{cut}")
    if others:
        parts.append("published: one number each, no CI")
    return "; ".join(parts)


def _x(field: str, scale: alt.Scale) -> alt.X:
    return alt.X(
        f"{field}:Q",
        title="Slowdown (images/s alone / concurrent)",
        axis=alt.Axis(format=".2~f", gridColor="#E6E6E6", tickCount=6),
        scale=scale,
    )


def _as_alone(scale: alt.Scale) -> alt.Chart:
    """Return the line of what is as fast as alone."""
    return (
        alt.Chart(alt.Data(values=[{"slowdown": 1.0}]))
        .mark_rule(strokeDash=[6, 4], stroke="#555555", strokeWidth=1.2)
        .encode(x=_x("slowdown", scale))
    )


def _measured_layers(
    rows: list[dict[str, Any]], scale: alt.Scale, y: alt.Y
) -> list[alt.Chart]:
    settings = list(dict.fromkeys(row["series"] for row in rows))
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=y,
        color=alt.Color(
            "series:N",
            scale=alt.Scale(domain=settings, range=MEASURED_COLOURS[: len(settings)]),
            legend=measured_legend(orient="bottom", direction="vertical"),
        ),
        tooltip=tooltip(
            arm="Job",
            series="Measured",
            slowdown="Slowdown",
            low="95% CI from",
            high="95% CI to",
            rounds="Rounds",
            alone="Runs alone",
        ),
    )
    known = with_intervals(base, 10 * max(row["slowdown"] for row in rows))
    return [
        known.mark_rule(strokeWidth=1.5, clip=True).encode(
            x=_x("low", scale), x2="end:Q"
        ),
        base.mark_circle(size=75, opacity=1).encode(x=_x("slowdown", scale)),
    ]
