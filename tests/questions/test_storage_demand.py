"""What GPUs ask of storage, what it gives, and which part is too slow."""

from __future__ import annotations

import pytest

from nbkit.questions.storage.demand import (
    Demand,
    EpochRates,
    Supply,
    epoch_rates,
    judge_utilization,
    limit_sentence,
)
from nbkit.statistics import summarise

KILOBYTE = 1e3


def step(epoch, seconds, *, warmup=False, images=100):
    return {
        "kind": "step",
        "epoch": epoch,
        "images": images,
        "step_time_seconds": seconds,
        "warmup": warmup,
    }


def supply(what, images_per_second, *, origin="read", decides=True):
    rate = summarise([images_per_second])
    return Supply("nas", what, origin, rate, 100 * KILOBYTE, decides=decides)


ASKED = Demand("A100", 8, 20_000, "published by somebody")


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
    # The run's first step counts in neither; all others do, warm-up too.
    lines = [step(0, 5.0, warmup=True), step(0, 0.2, warmup=True), step(0, 0.3)]

    found = epoch_rates([*lines, step(1, 0.1), step(1, 0.1)], 0.1)

    assert found.first_utilization == pytest.approx(0.2 / 0.5)
    assert found.later_utilization == pytest.approx(1.0)


def test_a_stall_between_epochs_counts_in_the_later_ones():
    lines = [step(0, 5.0), step(0, 0.1), step(1, 0.9), step(1, 0.1), step(2, 1.0)]

    found = epoch_rates(lines, 0.1)

    assert found.first_utilization == pytest.approx(1.0)
    assert found.later_utilization == pytest.approx(0.3 / 2.0)


@pytest.mark.parametrize(
    ("lines", "known"), [([0, 0], (1.0, None)), ([1, 1], (None, 1.0))]
)
def test_a_part_that_is_not_there_has_no_utilization(lines, known):
    found = epoch_rates([step(epoch, 0.1) for epoch in lines], 0.1)

    assert (found.first_utilization, found.later_utilization) == known


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


def test_a_loader_s_bytes_are_images_times_their_size():
    found = supply("x", 1000, origin="loader")

    assert found.bytes_per_second.median == pytest.approx(0.1e9)


@pytest.mark.parametrize(
    ("supplies", "said"),
    [
        (
            [
                supply("random reads, cold", 10_000),
                supply("x", 11_000, origin="loader"),
            ],
            "The storage is below the demand: cold random reads give 1 GB/s (2 "
            "needed).",
        ),
        (
            [supply("random reads, cold", 10_000), supply("x", 9_000, origin="loader")],
            "Storage and loader are below the demand: cold random reads give 1 GB/s "
            "(2 needed), and the loader gives 9,000 images/s from cold data (20,000 "
            "needed; nas); such reads would give 10,000, so faster storage alone "
            "changes little: reading and decoding images with these CPUs limits first.",
        ),
        (
            [supply("random reads, cold", 10_000), supply("x", 9_900, origin="loader")],
            "such reads would give 10,000, within 2% of the loader, so which of them "
            "limits first is unknown.",
        ),
        (
            [supply("random reads, cold", 30_000), supply("x", 9_000, origin="loader")],
            "The storage meets the demand: cold random reads give 3 GB/s (2 needed); "
            "the loader gives 9,000 images/s from cold data (20,000 needed; nas), so "
            "reading and decoding images with these CPUs is the limit and not the "
            "storage.",
        ),
        (
            # A loader of a pack may be faster than reads at random: both are said.
            [
                supply("random reads, cold", 10_000),
                supply("x", 25_000, origin="loader"),
            ],
            "cold random reads give 1 GB/s (2 needed), but the loader gives 25,000 "
            "images/s from cold data (20,000 needed; nas).",
        ),
        (
            [supply("x", 25_000, origin="loader")],
            "No cold random reads to judge by; the loader gives 25,000 "
            "images/s from cold data (20,000 needed; nas)",
        ),
        (
            [supply("x", 9_000, origin="loader")],
            "(20,000 needed; nas), and what limits it is unknown.",
        ),
        (
            # What does not come from cold storage in the way of a training.
            [
                supply("sequential reads, cold", 50_000, decides=False),
                supply("later epochs", 40_000, origin="loader", decides=False),
                supply("random reads, cold", 5_000),
            ],
            "cold random reads give 0.5 GB/s (2 needed).",
        ),
        (
            [supply("random reads, cold", 30_000)],
            "no loader was measured with cold data",
        ),
        ([], "No cold random reads to judge by; no loader was measured"),
    ],
)
def test_which_part_is_below_the_demand(supplies, said):
    assert said in limit_sentence(ASKED, supplies)
