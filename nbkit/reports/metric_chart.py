"""Chart of a metric: every start of every arm as a point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt

from nbkit import statistics
from nbkit.reports.chart_style import MEASURED_COLOURS, finished, tooltip
from nbkit.studies.metric import Metric

_LINE_HEIGHT = 34


def metric_chart(
    metric: Metric, values: Mapping[str, Sequence[float]]
) -> alt.LayerChart:
    """Draw every start as a point, and the median of each arm as a tick."""
    points = [
        {"arm": arm, "value": value} for arm, many in values.items() for value in many
    ]
    medians = [
        {"arm": arm, "value": statistics.summarise(many).median}
        for arm, many in values.items()
    ]
    x = alt.X("value:Q", title=metric.name, scale=alt.Scale(zero=False, nice=True))
    y = alt.Y("arm:N", sort=list(values), title=None, axis=alt.Axis(labelLimit=300))
    starts = alt.Chart(alt.Data(values=points)).mark_circle(
        size=60, opacity=0.6, color=MEASURED_COLOURS[0]
    )
    ticks = alt.Chart(alt.Data(values=medians)).mark_tick(
        thickness=2, size=22, color="#222222"
    )
    titles = tooltip(arm="Arm", value=metric.name)
    chart = alt.layer(
        starts.encode(x=x, y=y, tooltip=titles), ticks.encode(x=x, y=y, tooltip=titles)
    )
    subtitle = f"A point per start, a tick at the median; {metric.better} is better"
    height = _LINE_HEIGHT * len(values)
    return finished(chart, f"{metric.name} by arm", subtitle, height=height)
