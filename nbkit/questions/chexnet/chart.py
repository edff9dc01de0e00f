"""Charts of several labels: AUROC by label, and AUROC over the epochs.

Networks and the baseline of global statistics are measured, with their intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from nbkit.questions.chexnet.areas import LabelFinding
from nbkit.questions.chexnet.literature import PublishedAreas
from nbkit.reports.charts import (
    Rows,
    arm_axis,
    finished,
    intervals,
    lines,
    measured_colour,
    published_points,
    reference_line,
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
    rows = [
        {
            "label": label,
            "series": name,
            "auroc": estimate.value,
            "low": estimate.low,
            "high": estimate.high,
        }
        for name, estimates in series.items()
        for label, estimate in estimates
        if estimate is not None
    ]
    measured_labels = {row["label"] for row in rows}
    labels = [finding.label for finding in findings]
    shown = [{"label": label} for label in labels if label in measured_labels]
    others = [
        {**row, "series": paper.publisher, "auroc": paper.areas[row["label"]]}
        for paper in published
        for row in shown
        if row["label"] in paper.areas
    ]
    lowest = min([_LOWEST, *(row["auroc"] - 0.02 for row in [*rows, *others])])
    y = arm_axis(shown, "label")
    x = alt.X(
        "auroc:Q",
        title="AUROC (0.5 is chance)",
        scale=alt.Scale(domain=[max(0.0, lowest), 1], nice=False),
        axis=alt.Axis(format=".1f", gridColor="#E6E6E6", tickCount=7),
    )
    titles = {"label": "Label", "series": "Measured", "auroc": "AUROC"}
    offset = alt.YOffset("series:N", sort=list(series))
    groups: list[Any] = [
        reference_line(x, 0.5),
        intervals(rows, y, x, measured_colour(rows), titles, yOffset=offset),
    ]
    if others:
        titles["series"] = "Published"
        groups.append(published_points(others, x, y, titles))
    height = _LINE_HEIGHT * max(2, len(shown))
    return finished(groups, "AUROC by label", subtitle, height=height)


def epochs_chart(rows: Rows, subtitle: str, baseline: float | None) -> alt.LayerChart:
    """Draw the mean AUROC of every training over its epochs."""
    epochs = sorted({row["epoch"] for row in rows})
    ticks = epochs[:: 1 + len(epochs) // _MOST_TICKS]
    x = alt.X(
        "epoch:Q",
        title="Epoch",
        axis=alt.Axis(format="d", values=ticks, gridColor="#F0F0F0"),
    )
    y = alt.Y(
        "mean_auroc:Q",
        title="Mean AUROC of the evaluation",
        scale=alt.Scale(zero=False, padding=8),
        axis=alt.Axis(format=".2f", gridColor="#E6E6E6"),
    )
    titles = {"arm": "Measured", "epoch": "Epoch", "mean_auroc": "Mean AUROC"}
    groups: list[Any] = [lines(rows, x, y, titles, field="arm", detail="training:N")]
    if baseline is not None:
        groups.append(reference_line(y, baseline))
        subtitle += f"; dashed: {_STATISTICS}, {baseline:.3f}"
    return finished(groups, "AUROC over the epochs", subtitle)
