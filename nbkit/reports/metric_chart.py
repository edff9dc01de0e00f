"""Chart of a metric: every start of every arm as a point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt

from nbkit import statistics
from nbkit.reports.charts import MEASURED_COLOURS, arm_axis, finished, tooltip
from nbkit.studies.metric import Metric


def metric_chart(
    metric: Metric, values: Mapping[str, Sequence[float]]
) -> alt.LayerChart:
    """Draw every start as a point, and the median of each arm as a tick."""
    starts = [
        {"arm": arm, "value": value} for arm, many in values.items() for value in many
    ]
    medians = [
        {"arm": arm, "value": statistics.summarise(many).median}
        for arm, many in values.items()
    ]
    points, ticks = (
        alt.Chart(alt.Data(values=rows)).encode(
            alt.X("value:Q", title=metric.name, scale=alt.Scale(zero=False, nice=True)),
            arm_axis(medians),
            tooltip=tooltip(arm="Arm", value=metric.name),
        )
        for rows in (starts, medians)
    )
    marks = [
        points.mark_circle(size=60, opacity=0.6, color=MEASURED_COLOURS[0]),
        ticks.mark_tick(thickness=2, size=22, color="#222222"),
    ]
    subtitle = f"point: run; tick: median; {metric.better} is better"
    return finished(marks, f"{metric.name} by arm", subtitle, arms=len(values))
