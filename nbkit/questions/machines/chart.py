"""Chart of two machines: how many times as fast the first one is, a line an arm.

Measured is a filled circle with its interval, published by others a hollow diamond
without one, and the legend says which two are compared: the measured machines and the
published GPUs need not be the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from nbkit.questions.machines.literature import MachinePair
from nbkit.questions.machines.ratios import MatchedArm
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
"""An interval is cut this many times beyond the points: two noisy runs have one that
would press everything else together."""


def machines_chart(
    matched: Sequence[MatchedArm],
    pairs: Sequence[MachinePair],
    *,
    measured_names: tuple[str, str],
    published_names: tuple[str, str],
    title: str = "Speedup, measured and published",
) -> alt.LayerChart:
    """Draw ratios of throughput; 1 is as fast."""
    measured = [_measured(arm, measured_names) for arm in matched]
    published = [_published(pair, published_names) for pair in pairs]
    rows = [*measured, *published]
    points = [1.0, *(row["ratio"] for row in rows)]
    ends = [end for row in measured for end in (row["low"], row["high"]) if end]
    low = max(min([*points, *ends]), min(points) / _FURTHEST)
    high = min(max([*points, *ends]), max(points) * _FURTHEST)
    margin = 0.06 * (high - low) or 0.1
    low, high = low - margin, high + margin
    is_cut = any(end < low or end > high for end in ends)
    scale = alt.Scale(domain=[low, high], nice=False, zero=False)
    lines = list(dict.fromkeys(row["arm"] for row in rows))
    y = alt.Y(
        "arm:N",
        sort=lines,
        title=None,
        axis=alt.Axis(labelLimit=420, grid=True, gridColor="#F0F0F0", ticks=False),
    )
    layers: list[Any] = [_even(scale)]
    if published:
        legend = published_legend(orient="bottom", direction="vertical")
        titles = {"arm": "Published", "series": "Which", "ratio": "Ratio"}
        titles |= {"source": "Source"}
        place = _x("ratio", scale)
        layers.append(published_points(published, place, y, titles, legend))
    if measured:
        layers.append(alt.layer(*_measured_layers(measured, scale, y, 2 * high)))
    chart = alt.layer(*layers).resolve_scale(color="independent", shape="independent")
    return finished(
        chart,
        title,
        _subtitle(matched, pairs, is_cut=is_cut),
        height=_LINE_HEIGHT * len(lines),
    )


def _measured(arm: MatchedArm, names: tuple[str, str]) -> dict[str, Any]:
    return {
        "arm": f"measured: {arm.name}",
        "ratio": arm.ratio.estimate,
        "low": arm.ratio.ci_low,
        "high": arm.ratio.ci_high,
        "runs": min(arm.ratio.n_a, arm.ratio.n_b),
        "series": " / ".join(names),
    }


def _published(pair: MachinePair, names: tuple[str, str]) -> dict[str, Any]:
    return {
        "arm": pair.label,
        "ratio": pair.ratio,
        "series": " / ".join(names),
        "source": f"{pair.a.gpu_name} / {pair.b.gpu_name}, {pair.a.source}",
    }


def _subtitle(
    matched: Sequence[MatchedArm], pairs: Sequence[MachinePair], *, is_cut: bool
) -> str:
    parts = []
    if matched:
        several = any(arm.ratio.ci_low is not None for arm in matched)
        bars = "bars: 95% CI" if several else "no CI (n=1)"
        cut = ", clipped at the chart's edge" if is_cut else ""
        on_cpu = all(run.device_type == "cpu" for arm in matched for run in arm.a)
        cpu = "CPU smoke test; " if on_cpu else ""
        parts.append(f"{cpu}measured: ratio of medians over runs, {bars}{cut}")
    if pairs:
        parts.append("published: one number each, no CI")
    return "; ".join(parts)


def _x(field: str, scale: alt.Scale) -> alt.X:
    return alt.X(
        f"{field}:Q",
        title="Images/s, first / second",
        axis=alt.Axis(format=".2~f", gridColor="#E6E6E6", tickCount=6),
        scale=scale,
    )


def _even(scale: alt.Scale) -> alt.Chart:
    """Return the line of what is as fast."""
    return (
        alt.Chart(alt.Data(values=[{"ratio": 1.0}]))
        .mark_rule(strokeDash=[6, 4], stroke="#555555", strokeWidth=1.2)
        .encode(x=_x("ratio", scale))
    )


def _measured_layers(
    rows: list[dict[str, Any]], scale: alt.Scale, y: alt.Y, limit: float
) -> list[alt.Chart]:
    base = alt.Chart(alt.Data(values=rows)).encode(
        y=y,
        color=alt.Color(
            "series:N",
            scale=alt.Scale(range=MEASURED_COLOURS[:1]),
            legend=measured_legend(orient="bottom", direction="vertical"),
        ),
        tooltip=tooltip(
            arm="Arm",
            series="Measured",
            ratio="Ratio",
            low="95% CI from",
            high="95% CI to",
            runs="n per machine",
        ),
    )
    known = with_intervals(base, limit)
    return [
        known.mark_rule(strokeWidth=1.5, clip=True).encode(
            x=_x("low", scale), x2="end:Q"
        ),
        base.mark_circle(size=75, opacity=1).encode(x=_x("ratio", scale)),
    ]
