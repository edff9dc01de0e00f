"""Like against like: measured runs of two machines, and published rows of two GPUs."""

from __future__ import annotations

import functools
import re
from dataclasses import replace

import pytest

from nbkit.errors import NotEnoughDataError
from nbkit.launch.run import Run
from nbkit.questions.machines.facts import conditions
from nbkit.questions.machines.literature import published_pairs, published_sentence
from nbkit.questions.machines.ratios import (
    MachineRun,
    Mismatch,
    compare_machines,
    measured_sentence,
)
from nbkit.statistics import noise_floor
from nbkit.store.stored_runs import create_run_folder


def test_conditions_of_a_run_have_the_search_of_cudnn(small):
    paths = create_run_folder(small(cudnn_benchmark="exhaustive"))

    assert conditions(Run(paths.root))["cudnn_benchmark"] == "exhaustive"


ALIKE = {
    "model": "resnet50",
    "precision": "fp16",
    "memory_format": "channels_last",
    "batch_size_per_gpu": "256",
    "world_size": "8",
    "compile": "False",
}


def arm(*rates, device_type="cuda", **conditions):
    """Return a machine's runs, one a rate."""
    return [
        MachineRun(f"{rate}-{conditions}", ALIKE | conditions, rate, device_type)
        for rate in rates
    ]


FAST = (200.0, 202.0, 198.0, 201.0, 199.0)
SLOW = (100.0, 101.0, 99.0, 100.5, 99.5)


def test_runs_that_agree_in_everything_get_a_ratio_with_interval_and_verdict():
    [matched], left_out = compare_machines(arm(*FAST), arm(*SLOW), "a", "b")

    assert matched.name == "fp16"
    assert matched.ratio.estimate == pytest.approx(2.0)
    assert matched.ratio.verdict == "faster"
    assert matched.ratio.ci_low < 2.0 < matched.ratio.ci_high
    assert left_out == []
    sentence = measured_sentence([matched], [], "a", "b")
    assert sentence.startswith("a / b: 2.00x [")
    assert sentence.endswith("] (95% CI, n=5): faster, no A/A control (fp16).")


@pytest.mark.parametrize("condition", ALIKE)
def test_runs_that_differ_in_one_condition_are_never_compared(condition):
    others = arm(*SLOW, **{condition: "another"})

    matched, left_out = compare_machines(arm(*FAST), others, "a", "b")

    assert matched == []
    [one] = left_out
    assert (one.condition, one.a, one.b) == (condition, ALIKE[condition], "another")
    sentence = measured_sentence(matched, left_out, "a", "b")
    assert sentence.startswith("No comparison: no run of a matches one of b")
    assert condition in sentence


def test_each_precision_is_compared_with_its_own():
    a = arm(*FAST) + arm(*SLOW, precision="fp32")
    b = arm(*SLOW) + arm(50.0, precision="fp32") + arm(70.0, precision="bf16")

    matched, left_out = compare_machines(a, b, "a", "b")

    assert [(one.name, round(one.ratio.estimate)) for one in matched] == [
        ("fp16", 2),
        ("fp32", 2),
    ]
    assert matched[1].ratio.verdict == "not enough runs"
    assert left_out == [Mismatch("bf16", "precision", "fp16", "bf16")]


@functools.cache
def resnet50_pairs(a_gpu, b_gpu):
    return published_pairs(a_gpu, b_gpu, model="resnet50")


def test_published_pairs_agree_in_everything_that_is_stated():
    pairs = resnet50_pairs("A100", "V100")

    assert {pair.a.precision for pair in pairs} == {"fp16"}
    for pair in pairs:
        for name in (
            *("publisher", "software", "model", "precision", "memory_format"),
            *("batch_size_per_gpu", "world_size", "nnodes", "data", "statistic"),
            *("window", "origin", "compile", "phase"),
        ):
            assert getattr(pair.a, name) == getattr(pair.b, name)
        assert pair.a.gpu_name.startswith("A100")
        assert pair.b.gpu_name.startswith("V100")
        assert pair.a.source
        assert pair.b.source
    paddle = [
        round(pair.ratio, 2)
        for pair in pairs
        if pair.a.images_per_second == 1449.55  # out of the published log
    ]
    assert paddle == [1.83]


def test_a_measurement_that_is_printed_and_recomputed_counts_once():
    pairs = resnet50_pairs("A100", "V100")

    rates = {pair.a.images_per_second for pair in pairs}
    assert {1449.55, 10941.96} < rates  # medians of the published log
    assert not rates & {1449.65, 10744.6}  # the same logs' means, as printed


def forms(a_gpu, b_gpu):
    return {
        tuple(re.findall("SXM|PCIe", f"{pair.a.gpu_name} {pair.b.gpu_name}"))
        for pair in resnet50_pairs(a_gpu, b_gpu)
    }


def test_sxm_is_not_paired_with_pcie_unless_that_is_what_was_asked():
    assert forms("H100", "A100") == {("SXM", "SXM"), ("PCIe", "PCIe")}
    assert forms("H100-PCIe", "A100") == {("PCIe", "PCIe")}
    assert forms("NVIDIA H100 80GB HBM3", "A100-PCIe") == {("SXM", "PCIe")}
    # A row that leaves its form open may be either.
    assert {("SXM",), ("PCIe",)} <= forms("A100", "V100-16GB")


def test_a_row_without_a_rate_has_no_ratio():
    pair, *_ = resnet50_pairs("A100", "V100")

    for one in (
        replace(pair, a=replace(pair.a, images_per_second=None)),
        replace(pair, b=replace(pair.b, images_per_second=None)),
    ):
        with pytest.raises(NotEnoughDataError, match=r"images_per_second is .*None"):
            _ = one.ratio


def test_the_sentence_counts_what_is_16_bit_in_channels_first():
    pairs = resnet50_pairs("A100", "V100")
    slow = [pair for pair in pairs if pair.a.memory_format == "channels_first"]

    assert (
        "(17 pairs, 9 channels_first, 2 input-bound, 7 without batch size)"
        in published_sentence(pairs, "A100", "V100")
    )
    one = published_sentence(slow[:1], "A100", "V100")
    assert "(1 pair, 1 channels_first, 1 without batch size)" in one
    tf32 = published_pairs("H100", "A100", model="resnet50", precision=["tf32"])
    assert "(6 pairs, 6 without" in published_sentence(tf32, "H100", "A100")


def test_arms_are_told_apart_by_what_each_setting_is_called():
    settings = ({"compile": "True"}, {"cuda_graphs": "True"}, {"nnodes": "2"}, {})
    runs = [
        run
        for one in settings
        for run in arm(*FAST, **({"cuda_graphs": "False", "nnodes": "1"} | one))
    ]

    matched, _ = compare_machines(runs, runs, "a", "b")

    assert [one.name for one in matched] == [
        "fp16, compile, nnodes 1",
        "fp16, cuda_graphs, nnodes 1",
        "fp16, nnodes 2",
        "fp16, nnodes 1",
    ]


def test_a_ratio_that_one_machine_differs_from_itself_by_is_no_result():
    [matched], _ = compare_machines(arm(103.0), arm(100.0), "a", "b")
    sentences = [
        measured_sentence([matched], [], "a", "b", {matched.conditions: [("b", one)]})
        for one in (noise_floor([100.0], [105.0]), noise_floor([100.0], [101.0]))
    ]

    assert "a / b: no difference beyond the A/A control on b (5.0" in sentences[0]
    assert sentences[1] == "a / b: 1.03x (n=1): not enough runs for a verdict (fp16)."


@pytest.mark.parametrize("gain", [1.023, 1 / 1.023])
def test_verdicts_on_many_arms_of_two_machines_hold_together(gain):
    steady = (100.0, 100.1, 99.9, 100.2, 99.8)
    slight = [rate * gain for rate in steady]
    others = [run for n in range(6) for run in arm(*steady, batch_size_per_gpu=str(n))]

    [alone], _ = compare_machines(arm(*slight), arm(*steady), "a", "b")
    many, _ = compare_machines(
        [*arm(*slight), *others], [*arm(*steady), *others], "a", "b"
    )

    assert alone.ratio.verdict in ("faster", "slower")
    assert many[0].ratio.verdict == "no difference shown"
    assert {one.ratio.comparisons for one in many} == {7}
