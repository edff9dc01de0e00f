"""Chart of accuracy against time: every seed's curve and time to target.

A line is one seed, a filled circle the evaluation that reached the target; a seed that
never did ends in a cross. Everything in the chart was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from nbkit.reports.charts import (
    finished,
    lines,
    measured_colour,
    reference_line,
    tooltip,
)
from nbkit.review.milestones import RecipeTimes

_UNITS = ((7_200.0, 3_600.0, "hours"), (120.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))
"""Used from the first number on, seconds of a unit, its name."""


def accuracy_chart(recipes: Sequence[RecipeTimes], *, is_cpu: bool) -> alt.LayerChart:
    """Draw top-1 accuracy against time since the first image, a line a seed."""
    longest = max(run.curve[-1].seconds for recipe in recipes for run in recipe.runs)
    seconds, unit = next((s, u) for least, s, u in _UNITS if longest >= least)
    rows: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    for recipe in recipes:
        for run in recipe.runs:
            curve = [
                {
                    "series": recipe.recipe,
                    "seed": run.seed,
                    "run": run.run_id,
                    "time": point.seconds / seconds,
                    "epochs": point.epochs,
                    "accuracy": point.accuracy,
                }
                for point in run.curve
            ]
            rows += curve
            reached = [row for row in curve if row["accuracy"] >= run.target]
            ends.append({**[*reached, curve[-1]][0], "reached": bool(reached)})
    x = alt.X(
        "time:Q",
        title=f"Time since the first image request ({unit})",
        axis=alt.Axis(grid=False, tickCount=8),
        scale=alt.Scale(domain=[0, 1.03 * longest / seconds], nice=False),
    )
    y = alt.Y(
        "accuracy:Q",
        title="Top-1 accuracy",
        axis=alt.Axis(format=".0%", gridColor="#E6E6E6", tickCount=6),
        scale=alt.Scale(domainMin=0, nice=True),
    )
    titles = {"series": "Recipe", "seed": "Seed", "time": f"Time ({unit})"}
    titles |= {"epochs": "Epochs", "accuracy": "Top-1"}
    last = alt.Chart(alt.Data(values=ends)).encode(
        x, y, measured_colour(rows), tooltip=tooltip(**titles)
    )
    curves = alt.layer(
        lines(rows, x, y, titles, detail="run:N"),
        last.transform_filter("datum.reached").mark_circle(size=95, opacity=1),
        last.transform_filter("!datum.reached").mark_point(
            shape="cross", size=110, filled=True, opacity=1, angle=45
        ),
    )
    target = recipes[0].runs[0].target
    counts = "; ".join(
        f"{recipe.recipe} {recipe.times.reached} of {recipe.times.n}"
        for recipe in recipes
    )
    cpu = "CPU smoke test; " if is_cpu else ""
    text = f"{cpu}seeds that reached the target of {target * 100:.3g}% "
    text += f"(circle; cross: missed): {counts}"
    title = "Accuracy against time, every seed"
    return finished([reference_line(y, target), curves], title, text)
