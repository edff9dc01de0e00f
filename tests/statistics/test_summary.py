"""What a set of measurements is summarised to."""

from __future__ import annotations

import math

import pytest

from nbkit.errors import NotEnoughDataError
from nbkit.statistics import median_absolute_deviation, quartiles, summarise

FIVE_RUNS = [101.2, 99.8, 100.5, 102.1, 100.9]


def test_summary_gives_n_median_spread_and_range():
    summary = summarise([4.0, 1.0, 3.0, 2.0, 100.0])

    assert (summary.n, summary.median) == (5, 3.0)
    assert (summary.q25, summary.q75) == (2.0, 4.0)
    assert (summary.minimum, summary.maximum) == (1.0, 100.0)
    assert summary.mad == 1.0  # distances 1 2 0 1 97


def test_interval_is_students_t_on_the_logarithms():
    summary = summarise(FIVE_RUNS)

    # scipy 1.17.1: exp(mean(log x) -/+ t.ppf(.975, 4) * std(log x, ddof=1) / sqrt(5))
    assert summary.ci_low == pytest.approx(99.84603214628972, rel=1e-12)
    assert summary.ci_high == pytest.approx(101.959289101081, rel=1e-12)
    assert summary.confidence == 0.95


def test_relative_scatter_is_the_deviation_of_the_logarithms():
    # stdev(log x); the same at every confidence
    assert summarise(FIVE_RUNS).relative_scatter == pytest.approx(
        0.003771781078073787 * 5**0.5, rel=1e-9
    )
    wide = summarise(FIVE_RUNS, confidence=0.99)
    assert wide.relative_scatter == pytest.approx(0.003771781078073787 * 5**0.5)
    narrow = summarise(FIVE_RUNS)
    assert wide.ci_low < narrow.ci_low < narrow.ci_high < wide.ci_high
    assert summarise([101.2]).relative_scatter is None


def test_quartiles_follow_numpys_default():
    # numpy 2.3: numpy.quantile([7, 1, 3, 5.5], [.25, .75]) -> 2.5, 5.875
    assert quartiles([7, 1, 3, 5.5]) == (2.5, 5.875)


@pytest.mark.parametrize("function", [summarise, quartiles, median_absolute_deviation])
def test_no_value_at_all_is_an_error_that_says_what_is_needed(function):
    with pytest.raises(NotEnoughDataError, match=r"0 values \(minimum 1\)"):
        function([])


def test_a_value_that_is_not_a_number_is_named_by_its_place():
    with pytest.raises(NotEnoughDataError, match="value 2 of 3 is nan"):
        summarise([1.0, math.nan, 3.0])


@pytest.mark.parametrize(
    ("values", "independent", "low"),
    [
        ([101.2], True, None),
        (FIVE_RUNS, False, None),
        # A share of zero has no logarithm.
        ([0.0, 0.1, 0.2], True, None),
        ([17_179_869_184] * 5, True, 17_179_869_184),
    ],
)
def test_summarise_interval(values, independent, low):
    summary = summarise(values, independent=independent)

    assert summary.q25 <= summary.median <= summary.q75
    ends = (summary.ci_low, summary.ci_high)
    assert ends == ((None, None) if low is None else pytest.approx((low, low)))
