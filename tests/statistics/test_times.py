"""Times to an event that not every run has come to."""

import pytest

from nbkit.errors import NotEnoughDataError
from nbkit.statistics import olympic_mean, summarise, summarise_times

TIMES = [50.0, 30.0, 40.0, 20.0, 60.0]


def test_when_all_runs_got_there_the_numbers_are_those_of_any_runs():
    found, plain = summarise_times(TIMES), summarise(TIMES)

    assert (found.n, found.reached) == (5, 5)
    assert (found.median, found.q25, found.q75) == (40.0, 30.0, 50.0)
    assert (found.median, found.q25, found.q75) == (plain.median, plain.q25, plain.q75)
    assert (found.ci_low, found.ci_high) == (plain.ci_low, plain.ci_high)
    assert (found.fastest, found.slowest) == (20.0, 60.0)
    assert found.olympic_mean == pytest.approx(40.0)


def test_a_run_that_did_not_get_there_counts_as_later_than_all_others():
    found = summarise_times(TIMES[:4], not_reached=1)

    assert (found.n, found.reached) == (5, 4)
    # 20, 30, 40, 50 and one that is later: the middle is 40, not 35.
    assert (found.median, found.q25, found.q75) == (40.0, 30.0, 50.0)
    assert found.slowest is None
    assert (found.ci_low, found.ci_high) == (None, None)


@pytest.mark.parametrize(
    ("times", "not_reached", "median", "q75"),
    [
        ([10.0, 20.0], 1, 20.0, None),
        ([10.0], 1, None, None),
        ([10.0], 2, None, None),
        ([], 3, None, None),
    ],
)
def test_a_quantile_that_falls_on_such_a_run_is_unknown(
    times, not_reached, median, q75
):
    found = summarise_times(times, not_reached)

    assert (found.median, found.q75) == (median, q75)
    assert found.n == len(times) + not_reached


def test_the_olympic_mean_may_drop_one_run_that_did_not_get_there():
    assert olympic_mean([10.0, 20.0, 60.0]) == 20.0
    assert olympic_mean([10.0, 20.0], not_reached=1) == 20.0
    assert olympic_mean([10.0, 20.0], not_reached=2) is None
    assert olympic_mean([10.0, 20.0]) is None


def test_no_runs_and_times_of_nothing_are_refused():
    with pytest.raises(NotEnoughDataError):
        summarise_times([])
    with pytest.raises(NotEnoughDataError):
        summarise_times([-1.0, 1.0])


def test_nothing_needs_no_time_and_has_no_interval():
    found = summarise_times([0.0, 1.0, 4.0])

    assert (found.fastest, found.median, found.slowest) == (0.0, 1.0, 4.0)
    assert (found.ci_low, found.ci_high) == (None, None)
    assert summarise_times([0.0, 0.0]).median == 0.0
