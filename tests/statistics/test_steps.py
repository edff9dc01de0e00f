"""Which steps of a run count, and what they add up to."""

from __future__ import annotations

import pytest

from nbkit.statistics import (
    accelerator_utilization,
    bursts_in_words,
    images_per_second,
    measured_steps,
    share,
    step_images_per_second,
)


def step(number, *, warmup=False, images=512, seconds=0.5):
    return {
        "kind": "step",
        "step": number,
        "images": images,
        "step_time_seconds": seconds,
        "warmup": warmup,
    }


def test_measured_steps_leave_out_warmup_and_other_rows():
    rows = [
        step(1, warmup=True),
        step(2),
        {"kind": "evaluation", "step": 2},
        step(3),
    ]

    assert [row["step"] for row in measured_steps(rows)] == [2, 3]
    assert measured_steps(rows[:1]) == []
    assert step_images_per_second(rows[3:]) == [1024]


@pytest.mark.parametrize(
    ("milliseconds", "rate"),
    [
        ([500] * 6, 1024),
        ([46, 1, 5, 1, 1, 2, 75, 44, 3, 2, 43, 72], 12 * 512 / 0.295),
        ([100, 120, 140, 160, 180, 200], 6 * 512 / 0.9),
        ([10] * 99 + [9_010], 100 * 512 / 10),
    ],
    ids=["even", "bursts", "slowing", "one stall"],
)
def test_rate_of_a_run_is_its_images_over_its_time(milliseconds, rate):
    steps = [step(n, seconds=ms / 1e3) for n, ms in enumerate(milliseconds)]

    assert images_per_second(steps) == pytest.approx(rate)
    assert images_per_second([]) is None


def test_bursts_are_said_where_the_median_step_differs():
    assert bursts_in_words(100.0, 104.9, 0.2) is None
    assert bursts_in_words(None, None, None) is None
    assert bursts_in_words(353.8, 5051.4, 0.075) == (
        "steps come in bursts: 5,051 images/s in the median step, but 353.8 over all "
        "measured steps; the longest step took 0.075 s"
    )
    assert bursts_in_words(100.0, 94.0, 0.2) is not None


def test_share_weighs_a_long_stall_by_its_length():
    assert share([0.0, 0.0, 9.0], [1.0, 1.0, 10.0]) == 0.75
    assert share([], []) is None


def test_an_emulated_accelerator_is_busy_for_its_share_of_all_steps_but_the_first():
    steps = [
        step(1, warmup=True, seconds=9),
        step(2, seconds=0.5),
        step(3, seconds=0.4),
    ]

    assert accelerator_utilization(steps, 0.3) == pytest.approx(2 * 0.3 / 0.9)


@pytest.mark.parametrize(("count", "seconds"), [(0, 0.3), (1, 0.3), (3, 0.0)])
def test_nothing_emulated_and_a_lone_step_have_no_utilization(count, seconds):
    steps = [step(number) for number in range(count)]

    assert accelerator_utilization(steps, seconds) is None
