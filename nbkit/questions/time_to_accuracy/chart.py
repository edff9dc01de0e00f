"""Chart of accuracy against time: every seed's curve, and when it came to the target.

A line is one seed, a filled circle the evaluation that reached the target; a seed that
never did ends in a cross. Everything in the chart was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import altair as alt

from nbkit.reports.chart_style import (
    MEASURED_COLOURS,
    finished,
    measured_legend,
    tooltip,
)
from nbkit.review.milestones import RecipeTimes, TimeToTarget

_UNITS = ((7_200.0, 3_600.0, "hours"), (120.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))
"""Used from the first number on, seconds of a unit, its name."""


def accuracy_chart(
    recipes: Sequence[RecipeTimes],
    *,
    device_type: Literal["cuda", "cpu"],
    title: str = "Accuracy against time, every seed",
) -> alt.LayerChart:
    """Draw top-1 accuracy against time since the first image, a line a seed."""
    longest = max(run.curve[-1].seconds for recipe in recipes for run in recipe.runs)
    seconds, unit = next((s, u) for least, s, u in _UNITS if longest >= least)
    rows = [row for recipe in recipes for row in _rows(recipe, seconds)]
    ends = [row for recipe in recipes for row in _ends(recipe, seconds)]
    target = recipes[0].runs[0].target
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
    colour = alt.Color(
        "series:N",
        scale=alt.Scale(
            domain=[recipe.recipe for recipe in recipes],
            range=MEASURED_COLOURS[: len(recipes)],
        ),
        legend=measured_legend(),
    )
    shown = tooltip(
        series="Recipe",
        seed="Seed",
        time=f"Time ({unit})",
        epochs="Epochs",
        accuracy="Top-1",
    )
    lines = alt.Chart(alt.Data(values=rows)).encode(
        x=x, y=y, color=colour, detail="run:N", tooltip=shown
    )
    last = alt.Chart(alt.Data(values=ends)).encode(
        x=x, y=y, color=colour, tooltip=shown
    )
    chart = alt.layer(
        *_target_layers(target),
        lines.mark_line(strokeWidth=1.5, opacity=0.75),
        lines.mark_circle(size=14, opacity=0.75),
        last.transform_filter("datum.reached").mark_circle(size=95, opacity=1),
        last.transform_filter("!datum.reached").mark_point(
            shape="cross", size=110, filled=True, opacity=1, angle=45
        ),
    )
    return finished(chart, title, _subtitle(recipes, device_type))


def _rows(recipe: RecipeTimes, seconds: float) -> Iterator[dict[str, Any]]:
    """Yield every evaluation of every seed."""
    for run in recipe.runs:
        for point in run.curve:
            yield {**_of(recipe, run), **_point(point.seconds / seconds, point)}


def _ends(recipe: RecipeTimes, seconds: float) -> Iterator[dict[str, Any]]:
    """Yield where each seed reached the target, or where it was given up."""
    for run in recipe.runs:
        reached = [
            evaluation for evaluation in run.curve if evaluation.accuracy >= run.target
        ]
        point = reached[0] if reached else run.curve[-1]
        values = _point(point.seconds / seconds, point)
        yield {**_of(recipe, run), **values, "reached": bool(reached)}


def _of(recipe: RecipeTimes, run: TimeToTarget) -> dict[str, Any]:
    return {"series": recipe.recipe, "seed": run.seed, "run": run.run_id}


def _point(time: float, point: Any) -> Mapping[str, Any]:
    return {"time": time, "epochs": point.epochs, "accuracy": point.accuracy}


def _target_layers(target: float) -> list[alt.Chart]:
    values = [{"target": target, "text": f"target {target * 100:.3g}%"}]
    base = alt.Chart(alt.Data(values=values)).encode(y="target:Q")
    return [
        base.mark_rule(strokeDash=[6, 4], color="#444444"),
        base.mark_text(
            align="left", dx=6, dy=-8, fontSize=11, color="#444444", x=0
        ).encode(text="text:N"),
    ]


def _subtitle(recipes: Sequence[RecipeTimes], device_type: str) -> str:
    counts = "; ".join(
        f"{recipe.recipe} {recipe.times.reached} of {recipe.times.n}"
        for recipe in recipes
    )
    text = f"seeds that reached the target (circle; cross: missed): {counts}"
    return f"CPU smoke test; {text}" if device_type == "cpu" else text
