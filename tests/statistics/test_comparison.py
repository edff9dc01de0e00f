"""When one arm may be called faster than another."""

from __future__ import annotations

import functools
import math
import random

import pytest

from nbkit.errors import NotEnoughDataError
from nbkit.statistics import has_groups, holm, ratio

A = [101.2, 99.8, 100.5, 102.1, 100.9]
B = [95.0, 96.1, 94.2, 97.3, 95.5, 94.9]
SWAPPED = {
    "faster": "slower",
    "slower": "faster",
    "no difference shown": "no difference shown",
}


def scattered(generator, centre, runs=5, spread=0.01):
    return [centre * math.exp(generator.gauss(0, spread)) for _ in range(runs)]


def test_estimate_is_the_ratio_of_medians_and_interval_is_welchs_t_on_logarithms():
    result = ratio(A, B)

    assert result.estimate == pytest.approx(100.9 / 95.25)
    # scipy 1.17.1: exp(ttest_ind(log A, log B, equal_var=False).confidence_interval())
    assert result.ci_low == pytest.approx(1.04237618, rel=1e-8)
    assert result.ci_high == pytest.approx(1.07095944, rel=1e-8)
    assert (result.n_a, result.n_b) == (5, 6)


def test_bootstrap_is_a_cross_check_near_the_t_interval_and_reproducible():
    first, again, other = ratio(A, B), ratio(A, B), ratio(A, B, seed=7)

    assert first == again
    assert first.bootstrap_low == pytest.approx(first.ci_low, rel=0.02)
    assert first.bootstrap_high == pytest.approx(first.ci_high, rel=0.02)
    assert other.bootstrap_low == pytest.approx(first.bootstrap_low, rel=0.005)


def test_an_interval_beyond_the_margin_is_called_faster():
    result = ratio(A, B, a_name="bf16", b_name="fp32")

    assert result.verdict == "faster"
    assert result.sentence == (
        "bf16 / fp32 = 1.059 (95% CI [1.042, 1.071], n=5 and 6): "
        "bf16 is faster than fp32."
    )


def test_a_sure_difference_within_the_margin_is_no_difference():
    tight = [100 + (value - 100) / 100 for value in A]
    slightly_more = [value * 1.015 for value in tight]

    result = ratio(slightly_more, tight)

    assert 1 < result.ci_low < result.ci_high < 1.02
    assert result.verdict == "no difference shown"
    assert "practical margin of 2%" in result.sentence


def test_it_is_settled_when_the_interval_lies_beyond_the_margin_or_within_it():
    tight = [100 + (value - 100) / 100 for value in A]

    assert ratio(A, B).is_settled
    assert ratio(B, A).is_settled
    assert ratio(tight, [value * 1.001 for value in tight]).is_settled
    assert not ratio(A, [value * 1.04 for value in B]).is_settled
    assert not ratio(A[:4], B).is_settled
    assert not ratio([200.0], B).is_settled
    assert ratio(A, B, margin=0.05).verdict == "no difference shown"


def test_arms_whose_runs_are_all_equal_get_a_verdict():
    for one in (1.1, 3.0, 3_000.1):
        assert ratio([one] * 5, [1.0] * 5).verdict == "faster"
        assert ratio([1.0] * 5, [one] * 5).verdict == "slower"
        assert ratio([one] * 5, [1.0] * 5).ci_low == pytest.approx(one)


def test_shorter_durations_are_faster():
    times_a, times_b = [1 / value for value in A], [1 / value for value in B]

    assert ratio(times_a, times_b, higher_is_faster=False).verdict == "faster"
    assert ratio(times_b, times_a, higher_is_faster=False).verdict == "slower"
    wide = [80.0, 90.0, 100.0, 110.0, 120.0]
    varied = ratio(wide, wide[::-1], higher_is_faster=False)
    assert varied.verdict == "no difference shown"


def test_ratio_of_too_few_runs():
    four, one = ratio([200.0, 201.0, 199.0, 200.5], B), ratio([200.0], B)

    assert four.verdict == one.verdict == "not enough runs"
    assert four.ci_low > 2
    assert "5 per arm needed" in four.sentence
    assert one.estimate == pytest.approx(200 / 95.25)
    assert (one.ci_low, one.ci_high) == (None, None)
    assert (one.bootstrap_low, one.bootstrap_high) == (None, None)
    assert "no interval" in one.sentence


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([100.0, 0.0], B, "runs of new: value 2 of 2"),
        ([100.0, -3.0], B, "runs of new: value 2 of 2"),
        (A, [], "runs of B: 0 values"),
    ],
)
def test_ratio_of_no_result(a, b, message):
    with pytest.raises(NotEnoughDataError, match=message):
        ratio(a, b, a_name="new")


def test_swapping_the_arms_mirrors_the_verdict():
    generator = random.Random(11)
    seen = set()
    for _ in range(60):
        a = scattered(generator, 100 * generator.uniform(0.93, 1.07))
        b = scattered(generator, 100)
        forward, backward = ratio(a, b), ratio(b, a)
        seen.add(forward.verdict)
        assert backward.verdict == SWAPPED[forward.verdict]
        assert backward.estimate == pytest.approx(1 / forward.estimate)
        assert backward.ci_low == pytest.approx(1 / forward.ci_high)
    assert seen == set(SWAPPED)


def _against(factor, scatter=0.01, n=5):
    base = [100 * math.exp(scatter * one) for one in (-1, -0.5, 0, 0.5, 1)][:n]
    return functools.partial(ratio, [factor * one for one in base], base)


@pytest.mark.parametrize("factor", [1.038, 1 / 1.038])
def test_holm_asks_more_of_each_of_many(factor):
    alone = _against(factor)()
    many = holm([_against(factor), *[_against(1.0)] * 6])

    assert alone.verdict in ("faster", "slower")
    assert many[0].verdict == "no difference shown"
    assert (many[0].ci_low, many[0].ci_high) == (alone.ci_low, alone.ci_high)
    assert many[0].sentence.endswith(
        "margin of 2% in 7 comparisons (Holm's correction)."
    )
    assert not many[0].is_noise
    assert not many[0].is_settled


def test_holm_steps_down_after_each_that_is_shown():
    strong, weak = _against(1.5), _against(1.038)
    assert holm([weak]) == [weak()]
    assert holm([]) == []

    found = holm([*[strong] * 3, weak, *[strong] * 3])
    among_equals = holm([weak, *[_against(1.0)] * 6])

    assert [one.verdict for one in found] == ["faster"] * 7
    assert {one.comparisons for one in found} == {1}
    assert among_equals[0].verdict == "no difference shown"


@pytest.mark.parametrize(
    ("runs", "is_grouped"),
    [
        ([100, 100.1, 100.2, 110, 110.1], True),
        ([100, 100.2, 100.1, 100, 90], True),
        ([100, 101, 102, 103, 104], False),
        ([100, 100.1, 110], False),
        ([100, 110], False),
        ([100], False),
        ([100, 100, 100, 100.5, 100.5], False),
        ([100] * 5, False),
    ],
)
def test_has_groups_needs_a_gap_and_four_runs(runs, is_grouped):
    assert has_groups(runs) == is_grouped
