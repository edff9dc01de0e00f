"""Jobs at once: only what overlaps counts, and slowdown, fairness and total follow."""

from __future__ import annotations

import pytest

from nbkit.questions.concurrent_jobs.literature import published_rounds
from nbkit.questions.concurrent_jobs.slowdown import (
    ConcurrentJob,
    ConcurrentJobs,
    IsolatedRuns,
    Overlap,
    Round,
    fairness,
    fastest_over_slowest,
    overlap,
)


def steps(begin, seconds, count, images=10):
    """Return measured steps of equal length, one behind the other."""
    return [
        {
            "kind": "step",
            "t": begin + (number + 1) * seconds,
            "step_time_seconds": seconds,
            "images": images,
            "warmup": False,
        }
        for number in range(count)
    ]


def alone(*rates, arm="1 alone"):
    return IsolatedRuns(arm, dict(enumerate(rates)))


def ran(repeat, *rates):
    """Return a round whose jobs had these rates for ten seconds."""
    jobs = tuple(tuple(steps(0, 10 / rate, int(rate))) for rate in rates)
    return Round(repeat, ("a", "b"), Overlap(10.0, 1.0, jobs))


def concurrent(rounds, *bases):
    return ConcurrentJobs(
        "1,1",
        "not pinned",
        tuple(
            ConcurrentJob(
                f"1,1 job {n}", 1, base, tuple(one.rates[n - 1] for one in rounds)
            )
            for n, base in enumerate(bases, start=1)
        ),
        tuple(rounds),
    )


def test_only_steps_in_which_every_job_was_measured_count():
    # The second job starts late and is slowed as long as the first one runs.
    early = steps(0.0, 0.5, 10)
    late = [*steps(2.25, 1.0, 3), *steps(5.25, 0.5, 4)]

    found = overlap([early, late])

    assert found.seconds == 5.0 - 2.25
    assert [len(each) for each in found.steps] == [5, 2]
    assert found.images_per_second == (20.0, 10.0)
    assert found.share == pytest.approx(2.75 / 5.0)
    assert found.is_enough


def test_a_round_that_hardly_overlaps_does_not_count():
    found = overlap([steps(0.0, 1.0, 10), steps(7.0, 1.0, 10)])

    assert found.share == pytest.approx(0.3)
    assert [len(each) for each in found.steps] == [3, 3]
    assert not found.is_enough


@pytest.mark.parametrize("second", [[], steps(100.0, 1.0, 5)])
def test_jobs_that_were_never_measured_at_once_have_no_rate(second):
    found = overlap([steps(0.0, 1.0, 10), second])

    assert (found.seconds, found.share) == (0.0, 0.0)
    assert found.images_per_second == (None, None)
    assert not found.is_enough


def test_jains_index_is_one_for_equals_and_a_share_for_who_takes_all():
    assert fairness([3.0, 3.0, 3.0]) == 1.0
    assert fairness([1.0, 0.0, 0.0, 0.0]) == 0.25
    assert fairness([1.0, 2.0]) == pytest.approx(0.9)
    assert fastest_over_slowest([2.0, 1.0, 4.0]) == 4.0


def test_a_job_is_slowed_by_as_much_as_it_was_faster_alone():
    job = ConcurrentJob(
        "1,1 job 1", 1, alone(100, 101, 99, 100, 100), (80, 81, 79, 80, 80)
    )

    assert job.rate_ratio is not None
    assert job.slowdown is not None
    slowdown, low, high = job.slowdown
    assert slowdown == 1.25
    assert low is not None
    assert high is not None
    assert 1.2 < low < slowdown < high < 1.3
    assert job.rate_ratio.verdict == "slower"


def test_the_total_stands_against_the_sum_of_the_jobs_alone():
    found = concurrent(
        [ran(0, 90, 60), ran(1, 90, 60)], alone(100, 100), alone(100, 100)
    )

    assert found.totals == [pytest.approx(150.0)] * 2
    assert found.sums_alone == [200.0, 200.0]
    assert found.aggregate_efficiency is not None
    assert found.aggregate_efficiency.estimate == pytest.approx(0.75)
    assert found.fairness is not None
    assert found.fairness.median == pytest.approx(fairness([0.9, 0.6]))
    assert found.fastest_over_slowest is not None
    assert found.fastest_over_slowest.median == pytest.approx(1.5)
    whole = found.against_one_job(alone(300, arm="2 alone"))
    assert whole is not None
    assert whole.estimate == pytest.approx(0.5)


def test_fairness_is_of_the_part_that_each_job_keeps():
    # One job is twice as large: it has twice the rate, and nobody is treated unfairly.
    found = concurrent([ran(0, 50, 100)], alone(100), alone(200, arm="2 alone"))

    assert found.fairness is not None
    assert found.fairness.median == pytest.approx(1.0)


def test_what_netapp_printed_is_recomputed_from_its_rows():
    five = published_rounds()[0]

    assert five.rates == (21764, 23438, 22556, 22564, 22547)
    assert five.seconds == (2072, 2181, 2077, 2125, 2071)
    assert five.total == 112_869
    assert five.sum_alone == 5 * 22_231
    assert five.aggregate_efficiency == pytest.approx(1.0154, abs=1e-4)
    assert five.slowdowns is not None
    assert (min(five.slowdowns), max(five.slowdowns)) == pytest.approx(
        (0.9485, 1.0215), abs=1e-4
    )
    assert five.slowdowns_by_time is not None
    assert max(five.slowdowns_by_time) == pytest.approx(2181 / 2094)
    assert five.fairness == pytest.approx(0.99945, abs=1e-5)
    assert five.fastest_over_slowest == pytest.approx(23438 / 21764)
