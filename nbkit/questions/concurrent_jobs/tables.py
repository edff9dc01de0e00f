"""Tables of concurrent jobs: jobs, totals, settings, rounds, published."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nbkit.questions.concurrent_jobs.literature import PublishedRound
from nbkit.questions.concurrent_jobs.slowdown import (
    MINIMUM_OVERLAP,
    ConcurrentJobs,
    Effect,
    IsolatedRuns,
)
from nbkit.reports.arm_tables import each_run, needed_runs
from nbkit.reports.columns import (
    Column,
    ends,
    interval,
    interval_text,
    ratio,
    table,
)
from nbkit.reports.parts import Table
from nbkit.statistics import quantities as wording

_RATE = (
    Column("images/s", "images_per_second.median", wording.rate, "images_per_second"),
    Column(
        *("95% CI (n)", "images_per_second"),
        lambda summary: (
            f"{interval(wording.rate)(summary) or wording.UNKNOWN} ({summary.n})"
        ),
    ),
)
_JOBS = (
    Column("job", "arm"),
    *_RATE,
    Column(
        *("alone", "alone.images_per_second.median", wording.rate),
        csv="images_per_second_alone",
    ),
    Column("(n)", "alone.rates", lambda rates: f"({len(rates)})"),
    Column("slowdown", "slowdown", lambda slowdown: f"{slowdown[0]:.3f}"),
    Column("95% CI", "slowdown", lambda slowdown: interval_text(*slowdown[1:])),
    Column("verdict", "rate_ratio.verdict"),
    Column("needed", lambda job: needed_runs(job.needed, job.rate_ratio)),
    *(
        Column(None, lambda job, at=at: job.slowdown and job.slowdown[at], csv=name)
        for at, name in enumerate(
            ("slowdown_estimate", "slowdown_ci_low", "slowdown_ci_high")
        )
    ),
)


def jobs_table(
    concurrent: Sequence[ConcurrentJobs], where: str, notes: Sequence[str]
) -> Table:
    """Return each job among others against the same job alone."""
    jobs = [job for group in concurrent for job in group.jobs]
    return table(
        f"Slowdown per job, {where}",
        _JOBS,
        jobs,
        [
            "Images/s: median over rounds, from steps in which all jobs were measured. "
            "Slowdown: images/s alone / concurrent. Needed: repeats for a verdict.",
            *each_run(
                {job.alone.arm: [*job.alone.rates.values()] for job in jobs}
                | {job.arm: job.rates for job in jobs}
            ),
            *notes,
        ],
    )


def range_text(values: Sequence[float], digits: int) -> str | None:
    """Return lowest and highest, such as ``1.02 to 1.05``; None without any."""
    if not values:
        return None
    low, high = (f"{end(values):.{digits}f}" for end in (min, max))
    return low if low == high else f"{low} to {high}"


_TOTALS = (
    Column("concurrent jobs", "name"),
    *_RATE,
    *ratio("vs. sum of jobs alone", "aggregate_efficiency", "over_the_sum"),
    *ends("aggregate_efficiency", "over_the_sum"),
    Column("fairness", "fairness.median", "{:.4f}".format, "fairness"),
    Column("fastest / slowest", "fastest_over_slowest.median", "{:.3f}".format),
)


def totals_table(
    concurrent: Sequence[ConcurrentJobs], one_jobs: Mapping[str, IsolatedRuns]
) -> Table:
    """Return all jobs together against the sum of them alone, and against one job."""
    ratios = {
        jobs.name: jobs.against_one_job(one_jobs[jobs.name])
        for jobs in concurrent
        if jobs.name in one_jobs
    }
    known = {name: over for name, over in ratios.items() if over is not None}
    over_one_job = Column(
        "vs. 1 job on all",
        lambda jobs: known[jobs.name].estimate if jobs.name in known else None,
        "{:.3f}".format,
        "over_one_job",
    )
    return table(
        "Aggregate throughput",
        (*_TOTALS, over_one_job),
        concurrent,
        [
            "Fairness is Jain's index of each job's rate relative to its rate alone: 1 "
            "if all slow down equally, 1/n if only one of n jobs progresses, 0.999 if "
            "two jobs differ by 6%.",
            *(over.sentence for over in known.values()),
            *each_run({jobs.name: jobs.totals for jobs in concurrent}),
        ],
    )


_SETTINGS = (
    Column("measured", "measured"),
    Column("what", "what"),
    *ratio("ratio", "ratio", "ratio_estimate"),
    Column("runs", "ratio", lambda ratio: f"{ratio.n_a} and {ratio.n_b}"),
    *ends("ratio", "ratio"),
)


def settings_table(effects: Sequence[Effect]) -> Table:
    """Return what a setting does to the same jobs: pinning, storage of one's own."""
    note = (
        "Above 1: faster with the setting. Concurrent jobs: ratio of their aggregate "
        "throughput."
    )
    return table("Effect of pinning and storage", _SETTINGS, effects, [note])


def rounds_table(
    concurrent: Sequence[ConcurrentJobs], places: Mapping[str, str]
) -> Table:
    """Return every round: how long its jobs ran together, where, and which runs."""
    names = {round_.run_ids: jobs.name for jobs in concurrent for round_ in jobs.rounds}

    def joined(show: Callable[[Any], str]) -> Callable[[Sequence[Any]], str]:
        return lambda values: " + ".join(map(show, values))

    return table(
        "Overlap of the jobs in each round",
        (
            Column(
                "concurrent jobs",
                lambda round_: (
                    names[round_.run_ids] + " (left out)" * (not round_.is_valid)
                ),
            ),
            Column("repeat", "repeat", lambda repeat: f"{repeat + 1}"),
            Column("seconds", "overlap.seconds", "{:.1f}".format, "overlap_seconds"),
            Column("share", "overlap.share", wording.percent, "overlap_share"),
            Column("steps", "overlap.steps", joined(lambda steps: f"{len(steps)}")),
            Column("images/s", "overlap.images_per_second", joined(wording.rate)),
            Column("on", "run_ids", joined(lambda r: places.get(r, wording.UNKNOWN))),
            Column("runs", "run_ids", " ".join),
            Column(None, "is_valid", csv="is_valid"),
        ),
        [round_ for jobs in concurrent for round_ in jobs.rounds],
        [
            "Share: overlap / measured time of the fastest job. Steps outside the "
            f"overlap and rounds below {MINIMUM_OVERLAP * 100:.0f}% are omitted."
        ],
    )


_PUBLISHED = (
    Column("concurrent jobs", "name"),
    Column("alone", lambda jobs: f"{wording.rate(jobs.alone)} ({jobs.alone_is})"),
    Column(None, "alone", csv="images_per_second_alone"),
    Column("slowdown", "slowdowns", lambda slowdowns: range_text(slowdowns, 3)),
    Column("total", "total", wording.rate, "total_images_per_second"),
    Column(
        "vs. sum of jobs alone", "aggregate_efficiency", "{:.3f}".format, "over_the_sum"
    ),
    Column("fairness", "fairness", "{:.4f}".format, "fairness"),
    Column("fastest / slowest", "fastest_over_slowest", "{:.3f}".format),
    Column("vs. 1 job on all", "against_one_job", "{:.3f}".format, "over_one_job"),
)


def published_table(rounds: Sequence[PublishedRound]) -> Table:
    """Return published results of concurrent jobs, recomputed."""
    return table(
        "Published: concurrent jobs, recomputed from the printed numbers",
        _PUBLISHED,
        rounds,
        [
            "Images/s, single values without a CI or verdict. For values that the "
            'report gives as "about", a ratio within 2% of 1 is not a difference.',
        ],
    )


def published_jobs_table(rounds: Sequence[PublishedRound]) -> Table:
    """Return the published jobs one by one, by rate and by run time."""

    def entry(name: str) -> Callable[[tuple[PublishedRound, int]], Any]:
        return lambda job: getattr(job[0], name)[job[1]]

    row = entry("rows")
    return table(
        "Published: images/s and run time of each job",
        (
            Column("job", lambda job: f"{row(job).publisher}, job {job[1] + 1}"),
            Column("images/s", lambda job: row(job).images_per_second, wording.rate),
            Column("slowdown", entry("slowdowns"), "{:.3f}".format, "slowdown"),
            Column("run time", entry("seconds"), wording.minutes),
            Column(
                *("slowdown by time", entry("slowdowns_by_time"), "{:.3f}".format),
                csv="slowdown_by_time",
            ),
        ),
        [(jobs, at) for jobs in rounds for at, _ in enumerate(jobs.seconds or ())],
        [
            "Images/s and run times are from two lists of the report, in which the "
            "order of the jobs may differ.",
        ],
    )
