"""Chart of concurrent jobs: slowdown compared with a job alone, a line a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt

from nbkit.questions.concurrent_jobs.literature import PublishedRound
from nbkit.questions.concurrent_jobs.slowdown import ConcurrentJob
from nbkit.reports.charts import ratio_chart


def slowdown_chart(
    jobs: Mapping[str, Sequence[ConcurrentJob]],
    published: Sequence[PublishedRound],
    *,
    is_cpu: bool,
    title: str,
) -> alt.LayerChart:
    """Draw slowdowns; 1 is as fast as alone."""
    measured = [
        {
            "arm": job.arm,
            "series": setting,
            "slowdown": job.slowdown[0],
            "low": job.slowdown[1],
            "high": job.slowdown[2],
            "runs": job.rate_ratio.n_a,
            "alone": job.rate_ratio.n_b,
        }
        for setting, many in jobs.items()
        for job in many
        if job.rate_ratio is not None and job.slowdown is not None
    ]
    others = [
        {
            "arm": round_.name,
            "series": f"{round_.rows[0].publisher}, {round_.rows[0].year}",
            "slowdown": slowdown,
            "source": round_.rows[0].source,
        }
        for round_ in published
        for slowdown in round_.slowdowns or (1 / round_.aggregate_efficiency,)
    ]
    return ratio_chart(
        measured,
        others,
        field="slowdown",
        axis="Slowdown (images/s alone / concurrent)",
        titles={
            "arm": "Job",
            "series": "Measured",
            "slowdown": "Slowdown",
            "runs": "Rounds",
            "alone": "Runs alone",
        },
        statistic="ratio of medians",
        is_cpu=is_cpu,
        title=title,
    )
