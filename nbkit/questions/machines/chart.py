"""Chart of two machines: ratio of their throughput, a line an arm.

The legend says which two are compared: the measured machines and the published GPUs
need not be the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from nbkit.questions.machines.literature import MachinePair
from nbkit.questions.machines.ratios import MatchedArm, is_on_cpu
from nbkit.reports.charts import ratio_chart


def machines_chart(
    matched: Sequence[MatchedArm],
    pairs: Sequence[MachinePair],
    *,
    measured_names: tuple[str, str],
    published_names: tuple[str, str],
    title: str,
) -> alt.LayerChart:
    """Draw ratios of throughput; 1 is as fast."""
    measured = [
        {
            "arm": f"measured: {arm.name}",
            "ratio": arm.ratio.estimate,
            "low": arm.ratio.ci_low,
            "high": arm.ratio.ci_high,
            "runs": min(arm.ratio.n_a, arm.ratio.n_b),
            "series": " / ".join(measured_names),
        }
        for arm in matched
    ]
    published = [
        {
            "arm": pair.label,
            "ratio": pair.ratio,
            "series": " / ".join(published_names),
            "source": f"{pair.a.gpu_name} / {pair.b.gpu_name}, {pair.a.source}",
        }
        for pair in pairs
    ]
    return ratio_chart(
        measured,
        published,
        field="ratio",
        axis="Images/s, first / second",
        titles={
            "arm": "Arm",
            "series": "Measured",
            "ratio": "Ratio",
            "runs": "n per machine",
        },
        statistic="ratio of medians over runs",
        is_cpu=is_on_cpu(matched),
        title=title,
    )
