"""What a set of measurements is summarised to."""

from __future__ import annotations

import math
import random

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
    assert summarise([101.2]).relative_scatter is None


def test_higher_confidence_widens_the_interval():
    narrow, wide = summarise(FIVE_RUNS), summarise(FIVE_RUNS, confidence=0.99)

    assert wide.ci_low < narrow.ci_low < narrow.ci_high < wide.ci_high


def test_one_run_has_a_median_and_no_interval():
    summary = summarise([101.2])

    assert summary.median == summary.q25 == summary.q75 == 101.2
    assert summary.mad == 0
    assert summary.ci_low is None
    assert summary.ci_high is None


def test_steps_of_one_run_have_quartiles_and_no_interval():
    summary = summarise(FIVE_RUNS, independent=False)

    assert summary.q25 < summary.median < summary.q75
    assert summary.ci_low is None


def test_a_share_of_zero_can_be_summarised_and_has_no_interval():
    summary = summarise([0.0, 0.1, 0.2])

    assert summary.median == 0.1
    assert summary.ci_low is None


def test_equal_values_have_an_interval_of_no_width():
    summary = summarise([17_179_869_184] * 5)

    assert summary.mad == 0
    assert summary.ci_low == pytest.approx(17_179_869_184)
    assert summary.ci_high == pytest.approx(17_179_869_184)


def test_interval_covers_the_true_value_as_often_as_it_says():
    generator = random.Random(20240501)
    trials, covered = 3_000, 0
    for _ in range(trials):
        runs = [8_000 * math.exp(generator.gauss(0, 0.03)) for _ in range(5)]
        summary = summarise(runs)
        covered += summary.ci_low <= 8_000 <= summary.ci_high

    # 95 % give or take four standard errors of the simulation (0.4 % each)
    assert 0.934 < covered / trials < 0.966


def test_quartiles_follow_numpys_default():
    # numpy 2.3: numpy.quantile([7, 1, 3, 5.5], [.25, .75]) -> 2.5, 5.875
    assert quartiles([7, 1, 3, 5.5]) == (2.5, 5.875)


def test_one_outlier_hardly_moves_the_median_absolute_deviation():
    assert median_absolute_deviation([10, 11, 12, 13, 1_000_000]) == 1


@pytest.mark.parametrize("function", [summarise, quartiles, median_absolute_deviation])
def test_no_value_at_all_is_an_error_that_says_what_is_needed(function):
    with pytest.raises(NotEnoughDataError, match="at least 1 is needed"):
        function([])


def test_a_value_that_is_not_a_number_is_named_by_its_place():
    with pytest.raises(NotEnoughDataError, match="number 2 of 3 is nan"):
        summarise([1.0, math.nan, 3.0])
