"""Published rates are judged by what is general, whoever printed them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from nbkit.config.fields import SIXTEEN_BIT
from nbkit.references.rows import PublishedRow, published
from nbkit.review.findings import codes
from nbkit.review.row_checks import has_convolutions, row_findings

CLEAN = PublishedRow(
    series="a series",
    model="resnet50",
    framework="pytorch",
    software="a program",
    gpu_name="A100-SXM4-80GB",
    world_size=1,
    nnodes=1,
    precision="fp16",
    memory_format="channels_last",
    compile=False,
    batch_size_per_gpu=256,
    data="real",
    phase="train",
    images_per_second=2_400.0,
    speedup=None,
    time_to_target_minutes=None,
    runs=5,
    statistic="median of step rates",
    window="warm-up dropped",
    statistic_detail="100 steps after 10",
    origin="published",
    data_wait_share=0.01,
    conditions=None,
    publisher="Somebody",
    source="A report of somebody",
    url="https://example.org/report",
    year=2024,
)
EIGHT = replace(CLEAN, world_size=8, images_per_second=18_800.0)


def found(*rows):
    return [finding.code for finding in row_findings(rows)]


def test_a_row_that_says_everything_has_no_finding():
    assert found(CLEAN) == []
    assert found(CLEAN, EIGHT) == []
    small = replace(CLEAN, images_per_second=13_000.0, conditions="at 128 px")
    assert found(small) == []
    below_linear = replace(CLEAN, world_size=8, images_per_second=None, speedup=7.9)
    assert found(below_linear) == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"memory_format": "channels_first"}, "layout"),
        ({"memory_format": "channels_first", "precision": "bf16"}, "layout"),
        ({"window": "drained step included"}, "drained-step"),
        ({"window": "warm-up included"}, "warm-up"),
        ({"window": "evaluation included"}, "evaluation"),
        ({"statistic": "mean of step rates"}, "mean-of-rates"),
        ({"data_wait_share": 0.42}, "input-bound"),
        ({"precision": None}, "precision"),
        ({"runs": None}, "not-stated"),
        ({"statistic": None}, "not-stated"),
        ({"precision": None, "conditions": "mixed precision"}, "not-stated"),
        ({"images_per_second": 5_000.0}, "implausible-throughput"),
        ({"images_per_second": 13_000.0}, "impossible-throughput"),
        ({"phase": "emulation"}, "emulated"),
        ({"world_size": 8, "images_per_second": None, "speedup": 8.3}, "superlinear"),
    ],
)
def test_what_is_wrong_with_one_row_is_found_and_nothing_else(changes, code):
    assert found(replace(CLEAN, **changes)) == [code]


@pytest.mark.parametrize(
    "changes",
    [
        # Nothing is lost without tensor cores, without convolutions, in 32 bits, ...
        {"gpu_name": "P100-SXM2-16GB"},
        {"model": "vit_b_16"},
        {"precision": "tf32", "images_per_second": 900.0},
        {"precision": "fp32", "images_per_second": 400.0},
        # ... or where the compiler chooses the layout.
        {"compile": True},
    ],
)
def test_channels_first_is_no_fault_where_it_costs_nothing(changes):
    assert found(replace(CLEAN, memory_format="channels_first", **changes)) == []


@pytest.mark.parametrize(
    ("models", "is_convolutional"),
    [
        (("deit_base", "bert", "gpt2", "mlp", "vit_b_16"), False),
        (("wide_resnet50_2", "mobilenet_v3_large", "vgg16"), True),
    ],
)
def test_has_convolutions_knows_families(models, is_convolutional):
    assert {*map(has_convolutions, models)} == {is_convolutional}


def test_every_published_model_is_known_by_its_family():
    others = {row.model for row in published() if not has_convolutions(row.model)}

    assert others == {"vit_b_16", "vit_small_patch16_224"}


def test_what_a_publisher_leaves_open_is_said_once_a_program():
    rows = [
        replace(CLEAN, runs=None),
        replace(CLEAN, runs=None, statistic=None, precision="tf32"),
        replace(CLEAN, runs=None, software="another"),
    ]
    slow = replace(rows[1], images_per_second=1_000.0)

    first, second = (
        finding
        for finding in row_findings([rows[0], slow, rows[2]])
        if finding.code == "not-stated"
    )

    assert (first.code, first.subject) == ("not-stated", "Somebody: a program")
    assert first.claim == "2 rows"
    assert first.evidence == (
        "2 rows, not stated: number of runs, statistic (1 of 2 rows)"
    )
    assert second.evidence == "not stated: number of runs"


def test_the_gain_of_16_bits_is_what_the_published_tables_have():
    gains = {}
    same = ("publisher", "software", "gpu_name", "memory_format", "world_size")
    rates = {}
    for row in published():
        if row.phase == "train" and row.images_per_second:
            key = (*(getattr(row, n) for n in (*same, "nnodes", "data", "model")),)
            kind = "half" if row.precision in SIXTEEN_BIT else row.precision
            best = rates.setdefault(key, {})
            best[kind] = max(best.get(kind, 0.0), row.images_per_second)
    for key, best in rates.items():
        other = max(best.get("tf32", 0.0), best.get("fp32", 0.0))
        if other and "half" in best:
            gains.setdefault(key[3] == "channels_first", []).append(
                best["half"] / other
            )

    every = [gain for found in gains.values() for gain in found]
    ends = [f"{end(one):.1f}" for one in (every, gains[False]) for end in (min, max)]

    assert ends == ["1.0", "3.8", "2.0", "3.8"]
    why = codes()["precision"].why
    assert f"{ends[0]}x to {ends[1]}x" in why
    assert f"{ends[2]}x to {ends[3]}x" in why


def test_a_series_has_one_statistic_one_time_and_no_miracles():
    other = replace(EIGHT, statistic="images / time")
    later = replace(EIGHT, year=2022)
    wonder = replace(EIGHT, images_per_second=20_000.0)

    assert found(CLEAN, other) == ["mixed-statistics"]
    assert found(CLEAN, later) == ["mixed-environment"]
    assert found(CLEAN, wonder) == ["superlinear"]
    [finding] = row_findings([CLEAN, wonder])
    assert finding.subject == "a series"
    assert "8.33x speedup on 8x the GPUs" in finding.evidence


def test_a_point_beside_is_judged_as_a_part_of_the_series_only():
    beside = replace(EIGHT, statistic="images / time", data_wait_share=0.5)

    codes = [finding.code for finding in row_findings([CLEAN], beside=[beside])]

    assert codes == ["mixed-statistics"]


def test_a_small_gain_of_16_bits_is_found_whoever_prints_it():
    slow = replace(CLEAN, precision="tf32", images_per_second=2_000.0)
    usual = replace(CLEAN, precision="tf32", images_per_second=938.0)

    assert found(CLEAN, slow) == ["small-gain"]
    assert found(CLEAN, usual) == []
    # On another machine it is no comparison.
    assert found(CLEAN, replace(slow, gpu_name="H100-SXM-80GB")) == []


def test_a_batch_that_changes_with_the_precision_is_noted():
    other = replace(
        CLEAN, precision="fp32", batch_size_per_gpu=128, images_per_second=400.0
    )

    assert found(CLEAN, other) == ["confounded"]
    assert found(CLEAN, other, replace(other, batch_size_per_gpu=256)) == []


# Everything but what is merely not stated, of every table. A false alarm, or a check
# that no longer sees what it saw, changes a number here.
EXPECTED = {
    "Paddle": {
        "confounded": 2,
        "drained-step": 4,
        "input-bound": 3,
        "layout": 10,
        "mean-of-rates": 18,
        "mixed-environment": 2,
        "mixed-statistics": 4,
        "warm-up": 2,
    },
    "NVIDIA": {"confounded": 4, "superlinear": 1},
    "Lambda": {"confounded": 1, "layout": 40, "small-gain": 13},
    "Dell": {"precision": 7},
    "OneFlow DLPerf": {"confounded": 10},
    "timm": {"layout": 32},
    "apex": {"layout": 1},
    "xwang233": {"input-bound": 1},
    "ffcv": {"evaluation": 8},
    "MLPerf Storage": {"emulated": 2},
}


def test_every_published_row_is_judged_and_clean_tables_stay_clean():
    tables: dict[str, list[PublishedRow]] = {}
    for row in published():
        tables.setdefault(row.publisher, []).append(row)

    counts = {
        publisher: Counter(finding.code for finding in row_findings(rows))
        for publisher, rows in tables.items()
    }

    not_stated = Counter(
        {name: found.pop("not-stated", 0) for name, found in counts.items()}
    )
    assert {name: dict(found) for name, found in counts.items() if found} == EXPECTED
    assert not_stated.total() == 104  # nobody prints everything
    groups = {(row.publisher, row.software) for rows in tables.values() for row in rows}
    assert not_stated.total() <= len(groups)
    assert max(not_stated.values()) < 10
    mlperf = [name for name in tables if name.startswith("MLPerf v")]
    assert len(mlperf) > 50
    assert not set(mlperf) & set(EXPECTED)
