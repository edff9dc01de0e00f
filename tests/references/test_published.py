"""The published results: one vocabulary, a source on each, found by a GPU's name."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import pytest

from nbkit.errors import ConfigError
from nbkit.references.gpu_names import canonical_gpu_name
from nbkit.references.rows import (
    PublishedRow,
    curves,
    lookup,
    published,
    series,
)

VOCABULARY = {
    "model": {
        "alexnet",
        "densenet121",
        "efficientnet_b0",
        "resnet18",
        "resnet50",
        "resnet50d",
        "vgg16",
        "vit_b_16",
        "vit_small_patch16_224",
    },
    "framework": {
        "caffe2",
        "mxnet",
        "paddlepaddle",
        "pytorch",
        "tensorflow",
        "tinygrad",
        None,
    },
    "precision": {"fp32", "tf32", "fp16", "bf16", None},
    "memory_format": {"channels_first", "channels_last", None},
    "compile": {True, False, None},
    "data": {"synthetic", "real", None},
    "phase": {"train", "infer", "emulation"},
    "origin": {"published", "recomputed", "derived", "measured"},
    "statistic": {
        "images / time",
        "mean of runs",
        "mean of step rates",
        "median of epoch rates",
        "median of step rates",
        "the program's average",
        None,
    },
    "window": {
        "drained step included",
        "evaluation included",
        "every step",
        "warm-up dropped",
        "warm-up included",
        None,
    },
}
ROWS = published()


def test_every_row_keeps_to_the_vocabulary():
    for row in ROWS:
        for field, allowed in VOCABULARY.items():
            assert getattr(row, field) in allowed, row
        if row.gpu_name is None:
            assert row.conditions.startswith("CPU "), row
        else:
            assert canonical_gpu_name(row.gpu_name) == row.gpu_name, row


def test_every_row_names_its_source():
    # One is known from a copy whose address is not that of the original.
    without = {row.source for row in ROWS if row.url is None}
    assert len({s for s in without if not s.startswith("measured by nbkit")}) == 1
    for row in ROWS:
        assert row.publisher, row
        assert len(row.source) > 10, row
        assert 2015 <= row.year <= 2030, row
        if row.url is not None:
            assert row.url.startswith("https://"), row
            assert " " not in row.url, row
        if row.origin != "published":
            assert row.statistic, row
        # What is said in other words is also said in those of the vocabulary.
        assert (row.statistic is None) == (row.statistic_detail is None), row


def test_every_row_gives_numbers_that_make_sense():
    for row in ROWS:
        numbers = (row.images_per_second, row.speedup, row.time_to_target_minutes)
        known = [number for number in numbers if number is not None]
        assert known, row
        assert all(number > 0 for number in known), row
        assert 1 <= row.nnodes <= row.world_size, row
        assert row.batch_size_per_gpu is None or row.batch_size_per_gpu >= 1, row
        assert row.runs is None or row.runs >= 1, row
        assert row.data_wait_share is None or 0 <= row.data_wait_share < 1, row
        assert row.phase != "infer" or row.conditions.endswith("224 px"), row


def test_every_published_gpu_and_phase_is_there():
    counted = Counter(row.phase for row in ROWS)

    assert counted == {"train": 434, "infer": 156, "emulation": 2}
    assert len({row.gpu_name for row in ROWS if row.gpu_name}) == 39


def test_a_series_is_one_machine_at_several_sizes():
    groups = series(ROWS)

    assert len(groups) > 50
    for label, members in groups.items():
        sizes = [row.world_size for row in members]
        assert sizes == sorted(set(sizes)), label
        for field in ("model", "gpu_name", "precision", "memory_format", "phase"):
            assert len({getattr(row, field) for row in members}) == 1, (label, field)
        nodes = [row.nnodes for row in members]
        assert nodes == sorted(nodes), label
    alone = [row.series for row in ROWS if row.series and row.series not in groups]
    assert alone == []


def test_rows_hold_what_the_reports_print():
    def one(**wanted):
        found = [
            row
            for row in ROWS
            if all(getattr(row, name) == value for name, value in wanted.items())
        ]
        assert len(found) == 1
        return found[0]

    paddle = one(
        publisher="Paddle", gpu_name="V100-SXM2-32GB", images_per_second=21259.81
    )
    assert (paddle.world_size, paddle.nnodes, paddle.precision) == (32, 4, "fp16")
    assert paddle.memory_format == "channels_first"
    assert (paddle.statistic, paddle.window) == (
        "the program's average",
        "warm-up included",
    )
    mlperf = one(
        gpu_name="H200-SXM-141GB", world_size=8, publisher="MLPerf v4.0 NVIDIA"
    )
    assert mlperf.images_per_second == pytest.approx(63_608, abs=1)
    assert mlperf.time_to_target_minutes == pytest.approx(12.03, abs=0.01)
    assert mlperf.statistic == "median of epoch rates"
    assert (mlperf.runs, mlperf.framework) == (5, "mxnet")
    starved = one(framework="paddlepaddle", images_per_second=17587.654)
    assert starved.data_wait_share == pytest.approx(0.473)


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", {"H100-SXM-80GB"}),
        ("NVIDIA H100 PCIe", {"H100-PCIe-80GB"}),
        ("Tesla V100-SXM2-16GB", {"V100-SXM2-16GB", "V100-16GB", "V100"}),
        ("NVIDIA A100-SXM4-80GB", {"A100-SXM4-80GB", "A100-80GB", "A100"}),
        ("NVIDIA H200", {"H200-SXM-141GB"}),
    ],
)
def test_lookup_finds_rows_by_the_name_that_torch_prints(device, expected):
    rows = lookup(model="resnet50", gpu_name=device, precision="fp16")

    assert {row.gpu_name for row in rows} == expected
    assert {row.precision for row in rows} == {"fp16"}
    assert {row.phase for row in rows} == {"train"}


def test_lookup_narrows_by_every_argument():
    rows = lookup(
        model="resnet50",
        gpu_name="Tesla V100-SXM2-32GB",
        precision="fp16",
        memory_format="channels_last",
        world_size=1,
        data="real",
    )

    assert [row.images_per_second for row in rows] == [1156]


def test_curves_are_few_within_reach_and_pytorch_first():
    found = curves(
        model="resnet50",
        gpu_name="NVIDIA A100-SXM4-80GB",
        precision="fp16",
        largest_world_size=8,
    )

    assert 2 <= len(found) <= 4
    rows = [row for members in found.values() for row in members]
    assert max(row.world_size for row in rows) == 8
    assert rows[0].framework == "pytorch"
    others = curves(
        model="resnet50",
        gpu_name="NVIDIA H200",
        precision="bf16",
        largest_world_size=8,
    )
    [label] = others  # two repetitions of one publisher count once
    assert "fp16" in label


def test_curves_prefer_one_statistic_to_a_table_that_mixes_three():
    found = curves(
        model="resnet50",
        gpu_name="Tesla V100-SXM2-32GB",
        precision="fp32",
        largest_world_size=32,
    )

    ngc = [
        members
        for members in found.values()
        if "DeepLearningExamples" in members[0].software
    ]
    assert [members[0].origin for members in ngc] == ["recomputed"]


def test_a_notebook_shows_rows_as_a_table_with_links_to_the_sources():
    rows = lookup(model="resnet50", gpu_name="NVIDIA H200", world_size=1)
    page = rows._repr_html_()

    assert f"{len(rows)} published results" in page
    assert page.count("<tr>") == len(rows) + 1
    assert f'<a href="{rows[0].url}">' in page
    assert '<td style="text-align: left">–</td>' in page
    # A table of everything would be too long to read: it says what it leaves out.
    assert published()._repr_html_().count("<tr>") == 61
    assert "and 532 more" in published()._repr_html_()
    values = rows.to_dicts()
    assert list(values[0]) == [field.name for field in fields(PublishedRow)]
    assert values[0]["year"] == rows[0].year
    assert repr(published()).endswith("and 582 more")


def test_rows_are_asked_for_by_gpu_and_by_any_field():
    found = published(gpu_name="V100", precision="fp16", world_size=1)

    assert found
    assert {row.precision for row in found} == {"fp16"}
    assert {row.world_size for row in found} == {1}
    assert all(str(row.gpu_name).startswith("V100") for row in found)
    with pytest.raises(ConfigError, match="Did you mean 'gpu_name'"):
        published(gpu_nam="V100")
    with pytest.raises(ConfigError, match=r"gpus=8 is not a field.*world_size"):
        published(gpus=8)
    assert lookup(gpu_name="NVIDIA A100-SXM4-80GB MIG 1g.10gb") == []
    assert not [row for row in lookup() if row.publisher == "MLPerf Storage"]
