"""Charts of several labels: each one's AUROC, and how it rose over the epochs.

Networks are filled circles and the baseline of global statistics is a filled square,
both measured and both with their intervals; published by others is a hollow diamond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from nbkit.questions.chexnet.areas import AreaEstimate, LabelFinding
from nbkit.questions.chexnet.literature import PublishedAreas
from nbkit.reports.chart_style import (
    MEASURED_COLOURS,
    finished,
    measured_legend,
    published_points,
    tooltip,
)

_LINE_HEIGHT = 34
_LOWEST = 0.3
"""The axis begins here unless a point is lower; chance is 0.5."""
_MOST_TICKS = 20
_STATISTICS = "12 statistics"


def areas_chart(
    findings: Sequence[LabelFinding],
    published: Sequence[PublishedAreas],
    *,
    gpus: int,
    subtitle: str,
) -> alt.LayerChart:
    """Draw the AUROC of every label that has one."""
    series = {
        "network, 1 device": [(finding.label, finding.single) for finding in findings],
        f"network, {gpus} devices": [
            (finding.label, finding.parallel) for finding in findings
        ],
        _STATISTICS: [(finding.label, finding.baseline) for finding in findings],
    }
    values = [
        _measured(label, name, estimate)
        for name, estimates in series.items()
        for label, estimate in estimates
        if estimate is not None
    ]
    measured_labels = {value["label"] for value in values}
    shown = [it.label for it in findings if it.label in measured_labels]
    others = [
        {"label": label, "series": paper.publisher, "auroc": paper.areas[label]}
        for paper in published
        for label in shown
        if label in paper.areas
    ]
    lowest = min([_LOWEST, *(row["auroc"] - 0.02 for row in [*values, *others])])
    scale = alt.Scale(domain=[max(0.0, lowest), 1], nice=False)
    y = alt.Y(
        "label:N",
        sort=shown,
        title=None,
        axis=alt.Axis(labelLimit=300, grid=True, gridColor="#F0F0F0", ticks=False),
    )
    x = alt.X(
        "auroc:Q",
        title="AUROC (0.5 is chance)",
        scale=scale,
        axis=alt.Axis(format=".1f", gridColor="#E6E6E6", tickCount=7),
    )
    names = [name for name in series if any(v["series"] == name for v in values)]
    layers: list[Any] = [
        alt.Chart(alt.Data(values=[{"auroc": 0.5}]))
        .mark_rule(strokeDash=[4, 3], color="#888888")
        .encode(x=x),
        alt.layer(*_measured_layers(values, names, x, y, scale)),
    ]
    if others:
        titles = {"label": "Label", "series": "Published", "auroc": "AUROC"}
        layers.append(published_points(others, x, y, titles))
    chart = alt.layer(*layers).resolve_scale(color="independent", shape="independent")
    return finished(
        chart, "AUROC by label", subtitle, height=_LINE_HEIGHT * max(2, len(shown))
    )


def epochs_chart(
    rows: Sequence[Mapping[str, Any]], subtitle: str, baseline: float | None
) -> alt.LayerChart:
    """Draw the mean AUROC of every training over its epochs."""
    arms = list(dict.fromkeys(row["arm"] for row in rows))
    epochs = sorted({row["epoch"] for row in rows})
    ticks = epochs[:: 1 + len(epochs) // _MOST_TICKS]
    base = alt.Chart(alt.Data(values=[dict(row) for row in rows])).encode(
        x=alt.X(
            "epoch:Q",
            title="Epoch",
            axis=alt.Axis(format="d", values=ticks, gridColor="#F0F0F0"),
        ),
        y=alt.Y(
            "mean_auroc:Q",
            title="Mean AUROC of the evaluation",
            scale=alt.Scale(zero=False, padding=8),
            axis=alt.Axis(format=".2f", gridColor="#E6E6E6"),
        ),
        color=alt.Color(
            "arm:N",
            scale=alt.Scale(domain=arms, range=MEASURED_COLOURS),
            legend=measured_legend(),
        ),
        detail="training:N",
    )
    layers: list[alt.Chart] = [
        base.mark_line(strokeWidth=1.5, opacity=0.7),
        base.mark_circle(size=35, opacity=1),
    ]
    if baseline is not None:
        rule = alt.Chart(alt.Data(values=[{"mean_auroc": baseline}]))
        layers.append(
            rule.mark_rule(strokeDash=[6, 4], color="#444444").encode(
                y="mean_auroc:Q", tooltip=tooltip(mean_auroc=_STATISTICS)
            )
        )
        subtitle += f"; dashed: {_STATISTICS}, {baseline:.3f}"
    return finished(alt.layer(*layers), "AUROC over the epochs", subtitle)


def _measured(label: str, series: str, estimate: AreaEstimate) -> dict[str, Any]:
    return {
        "label": label,
        "series": series,
        "auroc": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
    }


def _measured_layers(
    values: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    x: alt.X,
    y: alt.Y,
    scale: alt.Scale,
) -> list[alt.Chart]:
    shapes = ["square" if name == _STATISTICS else "circle" for name in names]
    legend = alt.Legend(title="Measured", symbolOpacity=1, symbolSize=90)
    base = alt.Chart(alt.Data(values=list(values))).encode(
        y=y,
        yOffset=alt.YOffset("series:N", sort=list(names)),
        color=alt.Color(
            "series:N",
            scale=alt.Scale(domain=list(names), range=MEASURED_COLOURS),
            legend=legend,
        ),
        tooltip=tooltip(
            label="Label", series="Measured", auroc="AUROC", low="95% CI", high="to"
        ),
    )
    points = base.mark_point(size=70, filled=True, opacity=1).encode(
        x=x,
        shape=alt.Shape(
            "series:N",
            scale=alt.Scale(domain=list(names), range=shapes),
            legend=legend,
        ),
    )
    bars = (
        base.transform_filter("isValid(datum.low)")
        .mark_rule(strokeWidth=1.5, clip=True)
        .encode(
            x=alt.X("low:Q", scale=scale, title="AUROC (0.5 is chance)"), x2="high:Q"
        )
    )
    return [bars, points]
