"""Charts of arms: speedup over the baseline, and step time by component."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import altair as alt

from nbkit.reports.arms import Arms
from nbkit.reports.charts import (
    MEASURED_COLOURS,
    arm_axis,
    finished,
    interval_subtitle,
    measured_colour,
    reference_line,
    tooltip,
    value_axis,
    value_scale,
)
from nbkit.reports.parts import Figure
from nbkit.statistics import median_of
from nbkit.store.stored_runs import StoredRun

_BAR_HEIGHT, _INK = 15, "#222222"
_COMPONENTS = {
    "compute": "compute_share",
    "data wait": "data_wait_share",
    "exposed communication": "communication_share",
}
"""Shares of a step's time in a run's summary; their sum is 1."""


def speedup_figure(arms: Arms, title: str, caveats: Mapping[str, str]) -> Figure:
    """Return each arm's ratio to the baseline as a bar, with its 95% CI.

    The A/A control, and arms with a caveat, are muted.
    """
    words = {arms.baseline: "baseline", arms.control: "A/A control", **caveats}
    rows = [
        {
            "arm": row.arm,
            "speedup": (speedup := row.ratio.estimate if row.ratio else 1.0),
            "low": row.ratio and row.ratio.ci_low,
            "high": row.ratio and row.ratio.ci_high,
            "images_per_second": row.images_per_second.median,
            "runs": row.n,
            "label": ", ".join(filter(None, [f"{speedup:.2f}x", words.get(row.arm)])),
        }
        for row in sorted(arms.rows, key=lambda row: row.arm != arms.baseline)
        if row.images_per_second and (row.ratio or row.arm == arms.baseline)
    ]
    scale, is_cut = value_scale([1.0, *(row["speedup"] for row in rows)], rows)
    largest = scale["domain"][1]
    over = f"Speedup over {arms.baseline}"
    x = alt.X("speedup:Q", title=over, axis=value_axis(largest), scale=scale)
    shown = {"arm": "Arm", "speedup": "Speedup", "low": "CI from", "high": "CI to"}
    shown |= {"images_per_second": "Images/s", "runs": "Runs"}
    base = alt.Chart(alt.Data(values=rows)).encode(
        x, arm_axis(rows), tooltip=tooltip(**shown)
    )
    ended = base.transform_calculate(
        end=f"isValid(datum.high) ? min(datum.high, {largest}) : datum.speedup",
        label_place="max(datum.end, 1)",  # beyond the rule, which would cross it
    )
    is_muted = alt.FieldOneOfPredicate("arm", [arms.control or "", *caveats])
    groups = [
        base.mark_bar(color=MEASURED_COLOURS[0], height=_BAR_HEIGHT).encode(
            opacity=alt.condition(is_muted, alt.value(0.4), alt.value(1))
        ),
        reference_line(x, 1.0),
        ended.transform_filter("isValid(datum.low)")
        .mark_errorbar(color=_INK, ticks={"color": _INK, "size": 9})
        .encode(alt.X("low:Q", title=over), alt.X2("end:Q")),
        ended.mark_text(align="left", dx=7, color=_INK).encode(
            alt.X("label_place:Q"), text="label:N"
        ),
    ]
    statistic, is_cpu = "ratio of medians over runs", arms.is_functional
    subtitle = interval_subtitle(rows, statistic, is_cpu=is_cpu, is_cut=is_cut)
    return Figure(title, finished(groups, title, subtitle, arms=len(rows)))


def step_time_figures(runs_by_arm: Mapping[str, Sequence[StoredRun]]) -> list[Figure]:
    """Return stacked bars of the components of training steps; empty without any."""
    rows: list[dict[str, Any]] = []
    for component, share in _COMPONENTS.items():
        times = {
            arm: median_of(runs, partial(_milliseconds, share))
            for arm, runs in runs_by_arm.items()
            if all(run.config.task == "train" for run in runs)
        }
        rows += [
            {"arm": arm, "component": component, "milliseconds": time}
            for arm, time in times.items()
            if time is not None and any(times.values())
        ]
    if not rows:
        return []
    axis = alt.Axis(gridColor="#E6E6E6", tickCount=6)
    base = alt.Chart(alt.Data(values=rows)).encode(arm_axis(rows))
    bars = base.mark_bar(height=_BAR_HEIGHT).encode(
        alt.X("milliseconds:Q", title="Step time (ms)", axis=axis),
        measured_colour(rows, "component", orient="bottom"),
        tooltip=tooltip(arm="Arm", component="Component", milliseconds="ms"),
    )
    total = "sum(milliseconds):Q"
    text = base.mark_text(align="left", dx=7, color=_INK).encode(
        alt.X(total), text=alt.Text(total, format=",.3r")
    )
    title, arms = "Step time by arm", len({row["arm"] for row in rows})
    kinds = {run.summary.device_type for runs in runs_by_arm.values() for run in runs}
    subtitle = "CPU smoke test; " * (kinds == {"cpu"})
    subtitle += "each component: mean over ranks, median over runs"
    return [Figure(title, finished([bars, text], title, subtitle, arms=arms))]


def _milliseconds(share: str, run: StoredRun) -> float | None:
    part, seconds = getattr(run.summary, share), run.summary.step_time_seconds
    return None if part is None or seconds is None else 1e3 * part * seconds
