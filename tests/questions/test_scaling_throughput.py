"""The scaling table, its sentence and its JSON result."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nbkit.questions.scaling.throughput import (
    MeasuredRun,
    computed_sentence,
    scaling_table,
)
from nbkit.statistics.comparison import efficiency


def runs(arm, world_size, rates, **changes):
    first = MeasuredRun(
        arm=arm,
        world_size=world_size,
        nnodes=1,
        device_type="cuda",
        images_per_second=0.0,
        data_wait_share=0.02,
        communication_share=0.03,
        peak_memory_bytes=20e9,
        cpu_ms_per_image=2.5,
    )
    return [replace(first, images_per_second=rate, **changes) for rate in rates]


FP16 = [
    *runs("fp16", 4, [3_600.0, 3_640.0, 3_610.0, 3_590.0, 3_620.0]),
    *runs("fp16", 1, [1_000.0, 1_004.0, 996.0, 1_002.0, 998.0]),
]


def test_efficiency_is_the_rate_per_device_over_the_smallest_sizes():
    assert efficiency(3_600, 4, 1_000) == pytest.approx(0.9)
    assert efficiency(3_600, 8, 1_000, base_world_size=2) == pytest.approx(0.9)


def test_row_gives_median_interval_and_efficiency_over_runs():
    one, four = scaling_table(FP16)

    assert four.images_per_second.n == 5
    assert four.images_per_second.median == 3_610
    assert four.images_per_second.ci_low < 3_610 < four.images_per_second.ci_high
    assert four.images_per_second_per_device == 902.5
    assert four.speedup == pytest.approx(3.61)
    assert four.efficiency == pytest.approx(0.9025)
    assert four.efficiency_low < 0.9025 < four.efficiency_high
    assert (one.efficiency, one.speedup) == (1, 1)
    assert one.efficiency_low is None  # the base against itself says nothing


def test_without_one_gpu_the_smallest_size_is_the_base():
    rows = scaling_table(
        [*runs("fp16", 2, [2_000.0]), *runs("fp16", 8, [7_200.0], nnodes=2)]
    )

    assert rows[1].base_world_size == 2
    assert rows[1].speedup == pytest.approx(3.6)
    assert rows[1].efficiency == pytest.approx(0.9)
    assert rows[1].efficiency_low is None  # one run has no interval


def test_whole_nodes_are_held_against_one_device_and_against_one_node():
    across = runs("fp16", 8, [6_800.0, 6_840.0], nnodes=2)

    *_, four, eight = scaling_table([*FP16, *across])

    assert eight.label == "2 x 4"
    assert eight.efficiency == pytest.approx(6_820 / 8_000)
    assert eight.node_efficiency == pytest.approx(6_820 / (2 * 3_610))
    assert eight.node_efficiency_low < eight.node_efficiency
    assert eight.node_efficiency < eight.node_efficiency_high
    assert four.node_efficiency is None
    sentence = computed_sentence([four, eight])
    assert "fp16 on 2 x 4 GPUs: 6,820 images/s" in sentence
    assert ", 94.5% [" in sentence.rpartition("] relative to one node (95% CI")[0]


def test_nodes_are_not_held_against_a_node_that_nobody_measured():
    *_, last = scaling_table([*FP16, *runs("fp16", 16, [12_000.0], nnodes=2)])

    assert last.efficiency == pytest.approx(0.75)
    assert last.node_efficiency is None
    assert "relative to one node" not in computed_sentence([last])


def test_a_smallest_size_over_two_nodes_is_named_with_them():
    two = runs("fp16", 2, [1_800.0], nnodes=2)

    *_, last = scaling_table([*two, *runs("fp16", 4, [3_400.0], nnodes=2)])

    assert "x 2 x 1 GPU, efficiency" in computed_sentence([last])
