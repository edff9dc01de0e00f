"""How many runs a verdict needs, said from the first of them."""

from __future__ import annotations

import math

import pytest

from nbkit.statistics import MINIMUM_RUNS, noise_floor, ratio, runs_needed


def scattered(generator, centre, runs, spread):
    return [centre * math.exp(generator.gauss(0, spread)) for _ in range(runs)]


@pytest.mark.parametrize(
    ("a", "b", "runs", "more"),
    [
        ([104, 105, 106, 105, 104.5], [100, 101, 99, 100, 100.5], 5, 0),
        ([150.0, 151.0, 150.5], [100.0], 5, 6),
        ([3_000] * 2, [6_000] * 2, 5, 6),
        # Equal by luck: to be asked about again.
        ([100, 100], [101, 101], 5, 6),
    ],
)
def test_runs_needed(a, b, runs, more):
    needed = runs_needed(a, b)

    assert (needed.runs, needed.more) == (runs, more)
    preliminary = "estimate again with 5 per arm)."
    assert needed.sentence.endswith(preliminary if more else "runs are enough.")


def test_a_clear_difference_needs_the_minimum_of_a_verdict_and_says_how_long():
    needed = runs_needed(
        [150.0, 151.0], [100.0, 100.5], seconds_per_run=120.0, power=0.8
    )

    assert (needed.runs, needed.more, needed.seconds) == (5, 6, 720.0)
    assert needed.sentence == (
        "5 runs per arm are needed for 80% power: 6 more in total, about 12 minutes "
        "(preliminary: 2 and 2 runs are few to estimate scatter; estimate again with "
        "5 per arm)."
    )


def test_a_withheld_verdict_is_not_settled_and_needs_an_unknown_number_of_runs():
    base = [99.9, 99.95, 100, 100.05, 100.1]
    broken = noise_floor(base, [1.2 * value for value in base])
    faster = [1.5 * value for value in base]

    needed = runs_needed(faster, base, noise_floor=broken)

    assert not ratio(faster, base, noise_floor=broken).is_settled
    assert (needed.runs, needed.more) == (None, None)
    assert needed.sentence == (
        "Runs needed for a verdict: unknown, verdict withheld because the A/A control "
        "also shows a difference."
    )


def test_a_difference_within_the_noise_floor_needs_more_runs_of_the_control():
    base = [99.9, 99.95, 100, 100.05, 100.1]
    control = noise_floor(base, [100, 100, 100, 100, 85])
    faster = [1.03 * value for value in base]

    needed = runs_needed(faster, base, noise_floor=control)

    assert runs_needed(faster, base).more == 0
    assert ratio(faster, base, noise_floor=control).is_noise
    assert not ratio(faster, base, noise_floor=control).is_settled
    assert (needed.runs, needed.more) == (None, None)
    assert needed.sentence == (
        "More runs of the control are needed: the difference exceeds the practical "
        "margin of 2%, but not the noise floor."
    )
    far = [1.5 * value for value in base]
    assert runs_needed(far, base, noise_floor=control).more == 0


def test_a_difference_at_the_margin_needs_more_than_anybody_would_make():
    needed = runs_needed(
        [102.1, 101.0, 103.2, 102.4, 101.3],
        [100.3, 99.0, 101.2, 100.1, 99.4],
        seconds_per_run=60.0,
    )

    assert (needed.runs, needed.more, needed.seconds) == (None, None, None)
    assert needed.sentence.startswith("More than 100 runs per arm are needed")
    assert "practical margin of 2%" in needed.sentence


def test_more_scatter_needs_more_runs():
    def needed(spread):
        steps = (-1, 0, 1, 0)
        a = [105 * math.exp(spread * step) for step in steps]
        b = [100 * math.exp(spread * step) for step in steps]
        return runs_needed(a, b).runs

    assert needed(0.005) == MINIMUM_RUNS
    assert MINIMUM_RUNS < needed(0.02) < needed(0.03)


def test_more_power_and_confidence_need_more_runs():
    a, b = [106.0, 103.1, 105.0, 107.4], [100.0, 102.0, 99.0, 101.2]
    usual = runs_needed(a, b).runs

    assert usual < runs_needed(a, b, power=0.9).runs
    assert usual < runs_needed(a, b, confidence=0.99).runs


def test_one_run_an_arm_shows_no_scatter_to_plan_with():
    needed = runs_needed([150.0], [100.0], seconds_per_run=60.0)

    assert (needed.runs, needed.more, needed.seconds) == (None, None, None)
    assert "1 run per arm has no measurable scatter" in needed.sentence
    assert "at least 5 per arm" in needed.sentence


def test_unsettled_runs_always_need_more():
    # One arm scatters fifty times as much as the other: with a variance of its own for
    # each the difference is not settled, with a common one it would be.
    steady = [105 * (1 + 0.0005 * offset) for offset in (-1, -0.5, 0, 0.5, 1)]
    scattered = [100 * (1 + 0.033 * offset) for offset in (-1, -0.5, 0, 0.5, 1)]

    found = runs_needed(steady, scattered)

    assert not ratio(steady, scattered).is_settled
    assert found.more is not None
    assert found.more > 0
