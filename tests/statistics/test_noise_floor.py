"""What a configuration measured twice says about a study's verdicts."""

from __future__ import annotations

import math

import pytest

from nbkit.statistics import noise_floor, noise_floors_below, ratio

FIRST = [100.0, 101.0, 99.0, 100.5, 99.5]
SECOND = [100.4, 101.2, 99.6, 100.8, 99.2]
FASTER = [value * 1.2 for value in FIRST]


def test_floor_is_the_half_width_of_the_interval_and_the_sentence_says_it():
    control = noise_floor(FIRST, SECOND)

    assert control.ratio == ratio(SECOND, FIRST)
    half = math.log(control.ratio.ci_high / control.ratio.ci_low) / 2
    assert control.noise_floor == pytest.approx(math.expm1(half))
    assert not control.shows_difference
    assert control.sentence == (
        "A/A control: 0.4% difference (95% CI [-0.9, +1.4], n=5), noise floor 1.2%."
    )


def test_floor_is_not_below_what_the_control_itself_differs_by():
    first = [100, 100.1, 99.9, 100.05, 99.95]
    second = [101.5, 101.6, 101.4, 101.55, 101.45]

    control = noise_floor(first, second)

    # 1.5 %, within the margin; the half-width of the interval is 0.1 %
    assert not control.shows_difference
    assert control.noise_floor == pytest.approx(0.015, abs=1e-5)
    assert control.sentence == (
        "A/A control: 1.5% difference (95% CI [+1.4, +1.6], n=5), noise floor 1.5%."
    )
    swapped = noise_floor(second, first)
    assert swapped.noise_floor == pytest.approx(control.noise_floor)


def test_verdicts_are_withheld_when_the_control_shows_a_difference():
    sound, broken = noise_floor(FIRST, SECOND), noise_floor(FIRST, FASTER)

    assert ratio(FASTER, FIRST, noise_floor=sound).verdict == "faster"
    withheld = ratio(FASTER, FIRST, noise_floor=broken)
    assert withheld.verdict == "withheld"
    assert withheld.estimate == pytest.approx(1.2)
    assert "verdicts of this study are not reliable" in broken.sentence
    assert noise_floor(FASTER, FIRST).shows_difference
    assert ratio([2.0], [1.0], noise_floor=broken).verdict == "not enough runs"
    assert "verdict withheld" in withheld.sentence
    equal = ratio(FIRST, FIRST, noise_floor=broken)
    assert equal.verdict == "withheld"


def test_one_run_each_leaves_the_floor_unknown():
    control = noise_floor([100.0], [103.0])

    assert control.noise_floor is None
    assert not control.shows_difference
    assert control.sentence == (
        "A/A control: 3.0% difference (n=1, no interval), noise floor unknown."
    )


def test_what_a_configuration_differs_from_itself_by_is_not_believed_of_another():
    base = [99.9, 99.95, 100, 100.05, 100.1]
    control = noise_floor(base, [100, 100, 100, 100, 85])
    faster = [103 * value / 100 for value in base]

    alone = ratio(faster, base)
    beside = ratio(faster, base, noise_floor=control)

    assert not control.shows_difference
    assert control.noise_floor > 0.03
    assert alone.verdict == "faster"
    assert beside.verdict == "no difference shown"
    assert "no difference beyond the noise floor of" in beside.sentence
    assert ratio([150.0] * 5, base, noise_floor=control).verdict == "faster"


def test_a_ratio_of_medians_outside_the_interval_of_the_means_gets_no_verdict():
    # Two clock rates: most runs of the first arm are as fast as all of the second.
    grouped = [100 + 0.01 * place for place in range(12)]
    grouped += [80 + 0.01 * place for place in range(8)]
    steady = [100 + 0.01 * place for place in range(20)]

    found = ratio(grouped, steady)

    assert not found.ci_low <= found.estimate <= found.ci_high
    assert found.verdict == "withheld"
    assert "may form groups" in found.sentence


@pytest.mark.parametrize(
    ("runs", "base", "floors"),
    [
        # Two runs each, equally far apart: t(0.975, 2) = 4.30265, and the standard
        # error is the distance of two runs of an arm over the square root of 2.
        ([11.0, 12.1], [10.0, 11.0], math.sqrt(2) / 4.30265),
        ([10.0, 11.0], [11.0, 12.1], 0.0),
        ([1.0], [2.0, 2.1], None),
        ([2.0, 2.0], [1.0, 1.0], None),
    ],
)
def test_noise_floors_below_counts_critical_differences(runs, base, floors):
    lower = noise_floors_below(runs, base, higher_is_better=False)

    assert lower == (None if floors is None else pytest.approx(floors, rel=1e-5))
    inverse = [[1 / value for value in values] for values in (runs, base)]
    higher = noise_floors_below(*inverse, higher_is_better=True)
    assert higher == (None if lower is None else pytest.approx(lower))
