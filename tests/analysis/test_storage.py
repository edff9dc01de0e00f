"""What GPUs ask of storage, what it gives, and which part is too slow."""

from __future__ import annotations

import pytest

from nbkit.analysis.storage import (
    Demand,
    EpochRates,
    Supply,
    epoch_rates,
    judge_utilization,
    limit_sentence,
)
from nbkit.statistics import summarise

GIGABYTE = 1e9


def step(epoch, seconds, *, warmup=False, images=100):
    return {
        "kind": "step",
        "epoch": epoch,
        "images": images,
        "step_time_seconds": seconds,
        "warmup": warmup,
    }


def supply(what, gigabytes_per_second, *, origin="read", decides=True):
    rate = summarise([gigabytes_per_second * GIGABYTE])
    return Supply("nas", what, origin, rate, decides=decides)


ASKED = Demand("A100", 8, 20_000, 100_000, "published by somebody")


def test_the_first_epoch_is_apart_and_warm_up_is_left_out():
    lines = [
        step(0, 9.0, warmup=True),
        step(0, 1.0),
        step(0, 3.0),
        {"kind": "evaluation"},
        step(1, 0.5),
        step(2, 0.5),
    ]

    assert epoch_rates(lines) == EpochRates(50.0, 200.0)


def test_an_epoch_of_warm_up_alone_and_a_single_epoch_are_unknown():
    assert epoch_rates([step(0, 1.0, warmup=True)]) == EpochRates(None, None)


def test_an_emulated_accelerator_is_busy_as_mlperf_counts_it():
    # The first step counts in neither; all others do, warm-up too.
    lines = [step(0, 5.0, warmup=True), step(0, 0.2, warmup=True), step(0, 0.3)]

    found = epoch_rates([*lines, step(1, 0.1), step(1, 0.1)], 0.1)

    assert found.first_utilization == pytest.approx(0.2 / 0.5)
    assert found.later_utilization == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ([0.97, 0.98, 0.97, 0.98], "not enough runs"),
        ([0.97, 0.98, 0.97, 0.98, 0.97], "kept busy"),
        ([0.5, 0.51, 0.5, 0.52, 0.5], "starved"),
        ([0.85, 0.95, 0.88, 0.92, 0.9], "not settled"),
    ],
)
def test_a_verdict_needs_five_runs_and_an_interval_on_one_side(shares, said):
    assert judge_utilization(summarise(shares)) == said


def test_demand_is_images_times_their_size():
    assert ASKED.bytes_per_second == 2 * GIGABYTE


@pytest.mark.parametrize(
    ("supplies", "said"),
    [
        (
            [supply("random reads, cold", 1.0), supply("x", 0.9, origin="loader")],
            "The storage is below the demand: cold random reads give 1 of 2 GB/s.",
        ),
        (
            [supply("random reads, cold", 3.0), supply("x", 0.9, origin="loader")],
            "so that the loader is the limit and not the storage.",
        ),
        (
            [supply("random reads, cold", 1.0), supply("x", 2.5, origin="loader")],
            "Reads and loader give what is asked for.",
        ),
        (
            # What does not come from cold storage in the way of a training.
            [
                supply("sequential reads, cold", 5.0, decides=False),
                supply("later epochs", 4.0, origin="loader", decides=False),
                supply("random reads, cold", 0.5),
            ],
            "cold random reads give 0.5 of 2 GB/s",
        ),
        ([supply("random reads, cold", 3.0)], "no loader was measured"),
        ([], "was not measured"),
    ],
)
def test_which_part_is_below_the_demand(supplies, said):
    assert said in limit_sentence(ASKED, supplies)
