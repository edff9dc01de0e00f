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
    ("reads", "loader", "words"),
    [
        (
            10_000,
            11_000,
            ["storage is below the demand: cold random reads deliver 1 GB/s"],
        ),
        (10_000, 9_000, ["and loader are below", "Reading and decoding"]),
        (10_000, 9_900, ["Storage and loader are", "within 2% of the loader"]),
        (
            30_000,
            9_000,
            ["storage meets", "bottleneck: the loader delivers 9,000"],
        ),
        # A loader of a pack may be faster than reads at random: both are said.
        (
            10_000,
            25_000,
            ["storage is below", ", but the loader delivers 25,000 images/s"],
        ),
        (None, 25_000, ["No cold random reads", "(20,000 needed; nas)."]),
        (None, 9_000, ["No cold random reads", "the bottleneck is unknown."]),
        (30_000, None, ["storage meets", "no loader was measured cold"]),
        (None, None, ["No cold random reads were measured; no loader was measured"]),
    ],
)
def test_limit_sentence(reads, loader, words):
    # What does not come from cold storage in the way of a training does not decide.
    supplies = [
        supply("sequential reads, cold", 50_000, decides=False),
        supply("later epochs", 40_000, origin="loader", decides=False),
    ]
    supplies += [] if reads is None else [supply("random reads, cold", reads)]
    supplies += [] if loader is None else [supply("x", loader, origin="loader")]

    sentence = limit_sentence(ASKED, supplies)

    for part in words:
        assert part in sentence
