"""Chart of arms: each one's rate with its interval, one line an arm.

An arm whose answer is suspect says it beside its circle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import altair as alt

from nbkit.questions.precision.sentence import MeasuredArm
from nbkit.references.rows import PublishedRow
from nbkit.reports.charts import (
    arm_axis,
    finished,
    interval_subtitle,
    intervals,
    measured_colour,
    published_points,
    rate_axis,
    rate_cells,
    value_scale,
)


def arms_chart(
    arms: Sequence[MeasuredArm],
    published: Mapping[str, Sequence[PublishedRow]],
    *,
    device_type: Literal["cuda", "cpu"],
    title: str = "Training throughput by precision and layout",
) -> alt.LayerChart:
    """Draw images per second of every arm."""
    values = [
        {
            "arm": arm.arm,
            "precision": arm.format.precision,
            **rate_cells(arm.images_per_second),
            "ratio": arm.against.estimate if arm.against else 1.0,
            "caveat": arm.answer.caveat,
        }
        for arm in arms
    ]
    others = [
        {
            "arm": arm,
            "series": row.publisher,
            "images_per_second": row.images_per_second,
            "source": row.source,
        }
        for arm, rows in published.items()
        for row in rows
    ]
    points: list[float] = [row["images_per_second"] for row in [*values, *others]]
    # A caveat is written to the right of its circle.
    room = 1.25 if any(row["caveat"] for row in values) else 1.05
    scale, is_cut = value_scale(points, values, room=room)
    y = arm_axis(values)
    x = rate_axis(alt.X, scale, max(points))
    rate = {"images_per_second": "Images/s"}
    titles = {"arm": "Measured", **rate, "runs": "Runs", "ratio": "vs. baseline"}
    colour = measured_colour(values, "precision")
    groups: list[Any] = [intervals(values, y, x, colour, titles, note="caveat")]
    if others:
        titles = {"series": "Published", **rate, "source": "Source"}
        groups.append(published_points(others, x, y, titles))
    text = interval_subtitle(values, device_type=device_type, is_cut=is_cut)
    return finished(groups, title, text, arms=len(arms))
