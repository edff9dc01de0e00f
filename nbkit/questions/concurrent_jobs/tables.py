"""Tables of concurrent jobs: each job, all together, settings, rounds, published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nbkit.questions.concurrent_jobs.literature import (
    PublishedRound,
    claims_of_jobs,
    recomputed_means,
)
from nbkit.questions.concurrent_jobs.slowdown import (
    MINIMUM_OVERLAP,
    AloneRuns,
    Effect,
    Job,
    Together,
)
from nbkit.reports.arm_tables import (
    each_run,
    needed_runs,
    rate_interval,
    ratio_interval,
)
from nbkit.reports.parts import Table
from nbkit.statistics import Ratio, Summary
from nbkit.statistics import quantities as wording


def jobs_table(together: Sequence[Together], where: str, notes: Sequence[str]) -> Table:
    """Return each job among others against the same job alone."""
    jobs = [job for one in together for job in one.jobs]
    found = [job.slowdown for job in jobs]
    return Table(
        f"Each job among others against the same job alone, {where}",
        [
            *("job", "images/s", "95 % interval (rounds)", "alone", "(runs)"),
            *("slowdown", "95 % interval", "verdict", "needed"),
        ],
        [_job_cells(job) for job in jobs],
        [
            "Images/s: median over rounds of images over the time of those steps in "
            "which all jobs were measured. Slowdown: images/s alone over images/s "
            "among others; 1 is as fast as alone, 2 is half as fast. Needed: repeats "
            "of everything until a verdict can be expected.",
            *each_run(
                {job.alone.arm: [*job.alone.rates.values()] for job in jobs}
                | {job.arm: job.rates for job in jobs}
            ),
            *notes,
        ],
        {
            "images_per_second": [_median(job.images_per_second) for job in jobs],
            "images_per_second_alone": [
                _median(job.alone.images_per_second) for job in jobs
            ],
            "slowdown_estimate": [one and one[0] for one in found],
            "slowdown_ci_low": [one and one[1] for one in found],
            "slowdown_ci_high": [one and one[2] for one in found],
        },
    )


def _job_cells(job: Job) -> list[str | None]:
    rate, alone = job.images_per_second, job.alone.images_per_second
    return [
        job.arm,
        *_rate_cells(rate),
        None if alone is None else wording.rate(alone.median),
        f"({len(job.alone.rates)})",
        None if job.slowdown is None else f"{job.slowdown[0]:.3f}",
        None if job.slowdown is None else ratio_interval(*job.slowdown[1:]),
        None if job.kept is None else job.kept.verdict,
        needed_runs(job.needed, job.kept),
    ]


def _rate_cells(rate: Summary | None) -> list[str | None]:
    if rate is None:
        return [None, None]
    interval = rate_interval(rate.ci_low, rate.ci_high)
    return [wording.rate(rate.median), f"{interval or wording.UNKNOWN} ({rate.n})"]


def slowdown_text(jobs: Sequence[Job]) -> str | None:
    """Return the slowdowns of jobs, such as ``1.02 to 1.05``; None without any."""
    found = [job.slowdown[0] for job in jobs if job.slowdown is not None]
    if not found:
        return None
    low, high = f"{min(found):.2f}", f"{max(found):.2f}"
    return low if low == high else f"{low} to {high}"


def totals_table(
    together: Sequence[Together], one_jobs: Mapping[str, AloneRuns]
) -> Table:
    """Return all jobs together against the sum of them alone, and against one job."""
    kept = [one.total_kept for one in together]
    divided = [
        one.against_one_job(one_jobs[one.name]) if one.name in one_jobs else None
        for one in together
    ]
    notes = [
        "Fairness: Jain's index of the jobs' rates, each over its rate alone; 1 if all "
        "are slowed alike, 1/n if one of n gets everything. It hardly moves for small "
        "differences: of two jobs that are 6 % apart it is 0.999. Medians over rounds.",
    ]
    notes += [ratio.sentence for ratio in divided if ratio is not None]
    notes += each_run({one.name: one.totals for one in together})
    return Table(
        "All jobs together",
        [
            *("jobs at once", "images/s", "95 % interval (rounds)", "over the sum"),
            *("95 % interval", "verdict", "fairness", "fastest / slowest"),
            "over 1 job on all",
        ],
        [
            [
                one.name,
                *_rate_cells(one.images_per_second),
                *_ratio_cells(ratio),
                _number(one.fairness, 4),
                _number(one.fastest_over_slowest, 3),
                None if over is None else f"{over.estimate:.3f}",
            ]
            for one, ratio, over in zip(together, kept, divided, strict=True)
        ],
        notes,
        {
            "images_per_second": [_median(one.images_per_second) for one in together],
            "over_the_sum": [ratio and ratio.estimate for ratio in kept],
            "over_the_sum_ci_low": [ratio and ratio.ci_low for ratio in kept],
            "over_the_sum_ci_high": [ratio and ratio.ci_high for ratio in kept],
            "fairness": [_median(one.fairness) for one in together],
            "over_one_job": [ratio and ratio.estimate for ratio in divided],
        },
    )


def settings_table(effects: Sequence[Effect]) -> Table:
    """Return what a setting does to the same jobs: pinning, storage of one's own."""
    ratios = [effect.ratio for effect in effects]
    return Table(
        "What the settings give",
        ["measured", "what", "ratio", "95 % interval", "verdict", "runs"],
        [
            [
                effect.measured,
                effect.what,
                *_ratio_cells(effect.ratio),
                f"{effect.ratio.n_a} and {effect.ratio.n_b}",
            ]
            for effect in effects
        ],
        [
            "Above 1: faster with it. Jobs together are their total, a job alone is "
            "its own rate."
        ],
        {
            "ratio_estimate": [ratio.estimate for ratio in ratios],
            "ratio_ci_low": [ratio.ci_low for ratio in ratios],
            "ratio_ci_high": [ratio.ci_high for ratio in ratios],
        },
    )


def _ratio_cells(ratio: Ratio | None) -> list[str | None]:
    if ratio is None:
        return [None, None, None]
    interval = ratio_interval(ratio.ci_low, ratio.ci_high)
    return [f"{ratio.estimate:.3f}", interval, ratio.verdict]


def rounds_table(together: Sequence[Together], places: Mapping[str, str]) -> Table:
    """Return every round: how long its jobs ran together, where, and which runs."""
    rounds = [(one, each) for one in together for each in one.rounds]
    return Table(
        "Rounds: for how long were the jobs measured concurrently?",
        [
            *("jobs at once", "repeat", "seconds", "share", "steps", "images/s"),
            *("on", "runs"),
        ],
        [
            [
                f"{one.name}{'' if each.counts else ' (left out)'}",
                f"{each.repeat + 1}",
                f"{each.overlap.seconds:.1f}",
                wording.percent(each.overlap.share),
                " + ".join(f"{len(steps)}" for steps in each.overlap.steps),
                " + ".join(map(wording.rate, each.overlap.images_per_second)),
                " + ".join(places.get(run, wording.UNKNOWN) for run in each.run_ids),
                " ".join(each.run_ids),
            ]
            for one, each in rounds
        ],
        [
            "Share: of the time in which the quickest job was measured. Steps of a job "
            "while another was still starting, warming up or already done are "
            f"omitted, as is a round below {MINIMUM_OVERLAP * 100:.0f} %."
        ],
        {
            "overlap_seconds": [each.overlap.seconds for _, each in rounds],
            "overlap_share": [each.overlap.share for _, each in rounds],
            "counts": [each.counts for _, each in rounds],
        },
    )


def published_table(rounds: Sequence[PublishedRound]) -> Table:
    """Return published results of concurrent jobs, recomputed."""
    return Table(
        "Published by others: concurrent jobs, recomputed from the printed numbers",
        [
            *("jobs at once", "alone", "slowdown", "total", "over the sum"),
            *("fairness", "fastest / slowest", "over 1 job on all"),
        ],
        [
            [
                one.name,
                f"{wording.rate(one.alone)} ({one.alone_is})",
                _range(one.slowdowns),
                wording.rate(one.total),
                f"{one.total_kept:.3f}",
                _figure(one.fairness, 4),
                _figure(one.fastest_over_slowest, 3),
                _figure(one.against_one_job, 3),
            ]
            for one in rounds
        ],
        [
            "Images/s; one number each, without an interval or verdict. Where the "
            'report says "about", a ratio within 2 % of 1 and fairness mean nothing.',
            *recomputed_means(),
        ],
        {
            "images_per_second_alone": [one.alone for one in rounds],
            "total_images_per_second": [one.total for one in rounds],
            "over_the_sum": [one.total_kept for one in rounds],
            "fairness": [one.fairness for one in rounds],
            "over_one_job": [one.against_one_job for one in rounds],
        },
    )


def published_jobs_table(rounds: Sequence[PublishedRound]) -> Table:
    """Return the published jobs one by one, by rate and by run time."""
    jobs = [
        (one, place, seconds)
        for one in rounds
        for place, seconds in enumerate(one.seconds or ())
    ]
    by_rate = [one.slowdowns[place] for one, place, _ in jobs if one.slowdowns]
    by_time = [
        one.slowdowns_by_time[place] for one, place, _ in jobs if one.slowdowns_by_time
    ]
    return Table(
        "Published by others: each job, by its rate and by its run time",
        ["job", "images/s", "slowdown", "run time", "slowdown by time"],
        [
            [
                f"{one.rows[place].publisher}, job {place + 1}",
                wording.rate(one.rows[place].images_per_second),
                f"{rate:.3f}",
                f"{int(seconds // 60)}:{int(seconds % 60):02d}",
                f"{time:.3f}",
            ]
            for (one, place, seconds), rate, time in zip(
                jobs, by_rate, by_time, strict=True
            )
        ],
        [
            "Rates and run times are listed in the order printed, which need not be "
            "the same order of jobs.",
            *claims_of_jobs(),
        ],
        {"slowdown": by_rate, "slowdown_by_time": by_time},
    )


def _range(values: Sequence[float] | None) -> str | None:
    if values is None:
        return None
    low, high = f"{min(values):.3f}", f"{max(values):.3f}"
    return low if low == high else f"{low} to {high}"


def _figure(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def _median(summary: Summary | None) -> float | None:
    return None if summary is None else summary.median


def _number(summary: Summary | None, digits: int) -> str | None:
    return _figure(_median(summary), digits)
