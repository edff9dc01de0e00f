"""What the scaling report says follows from what was measured."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from nbkit.questions.scaling import page
from nbkit.questions.scaling.nodes import node_times
from nbkit.questions.scaling.page import ScalingResult
from nbkit.questions.scaling.throughput import MeasuredRun
from nbkit.reports.bandwidth import Bandwidth
from nbkit.reports.charts import PUBLISHED_COLOURS
from nbkit.reports.page import Evidence
from nbkit.reports.renderer import Table
from nbkit.statistics import quantities as wording
from nbkit.store.bundle_import import import_bundle
from nbkit.studies.devices import Devices
from nbkit.studies.study import Study
from tests.golden.cases_speed import SPEED
from tests.golden.hosts import H100_NODE
from tests.golden.studies import build

A100 = Devices("cuda", 4, "NVIDIA A100-SXM4-80GB")
NO_EXCHANGE = Bandwidth([], 1, "cuda")


def measured(sizes, *, devices=A100, chosen=None, requested=8, times=(), **facts):
    """Return the result of a study with three runs of every size.

    8 GPUs a node are requested for.
    """
    plan = {
        "devices": {"count": devices.count, "name": devices.name},
        "requested": requested,
        "measured": max(sizes),
        "gpus_per_node": 8,
        "chosen": chosen or {},
    }
    study: Any = SimpleNamespace(kind="scaling")
    evidence = Evidence(
        study=study,
        runs={},
        lost={},
        conditions={"model": "resnet50", **facts},
        plan=plan,
        repeats=3,
        is_cpu=devices.is_cpu,
    )
    runs = [
        MeasuredRun(
            arm="fp16",
            world_size=size,
            nnodes=max(1, size // 8),
            device_type=devices.device_type,
            images_per_second=2500 * size * (1 - 0.01 * (size - 1)) + repeat,
            data_wait_share=0.01,
            communication_share=None,
            peak_memory_bytes=22 * 2**30,
            cpu_ms_per_image=1.25,
        )
        for size in sizes
        for repeat in range(3)
    ]
    return ScalingResult(evidence, runs, NO_EXCHANGE, times)


def test_a_gpu_nobody_has_published_has_no_context():
    unknown = measured([1], devices=Devices("cuda", 1, "Imaginary 9000"))

    assert unknown.context is None

    queue = Devices("cuda", 8)
    known = measured([1, 2], devices=queue, device_name=A100.name).context

    assert isinstance(known, Table)
    assert all("A100" in (row[0] or "") for row in known.rows)


def test_the_next_step_asks_for_gpus_of_one_node():
    chosen = {"gpus": 8, "nnodes": 2}

    step = measured([1, 8], chosen=chosen, requested=16).report().next_step

    assert step.startswith("on 16 GPUs: ")
    assert step.endswith("out.ipynb -p nnodes 2 -p gpus 8")


def test_two_nodes_are_not_extended_and_the_report_says_what_would_be_needed():
    result = measured([1, 2, 4, 8, 16], requested=16, chosen={"nnodes": 2})

    report = result.report()

    assert result.projection is None
    assert any("No projection to 32 GPUs" in note for note in report.notes)
    assert any("Measure 2 and 4 nodes" in note for note in report.notes)
    assert report.next_step.startswith("on 4 nodes, for a larger projection: ")
    assert report.next_step.endswith("-p nnodes 4 -p gpus 8")


def test_two_points_across_nodes_are_extended_to_more_nodes_than_were_asked_for():
    projection = measured([1, 2, 4, 8, 16, 32], requested=32).projection

    assert isinstance(projection, Table)
    assert [row[1] for row in projection.rows] == ["64", "128"]


def test_sizes_across_nodes_are_named_and_held_against_one_node():
    table = measured([1, 8, 16], requested=16).table

    one, eight, across = (
        dict(zip(table.columns, row, strict=True)) for row in table.rows
    )
    assert across["GPUs"] == "2 x 8"
    assert across["vs. one node"] == wording.percent(across_rate(16) / across_rate(8))
    assert (one["vs. one node"], eight["vs. one node"]) == (None, None)
    assert table.values["nnodes"] == [1, 1, 2]
    assert "vs. one node" not in measured([1, 2]).table.columns


def across_rate(size):
    return 1 - 0.01 * (size - 1)


def test_nodes_have_a_table_and_who_holds_them_up_is_said():
    ranks = [
        {
            "rank": rank,
            "steps": 10,
            "step_time_seconds": 1.2,
            "data_wait_seconds": 0.012,
            "communication_exposed_seconds": 0.2 if rank < 15 else 0.0,
        }
        for rank in range(16)
    ]
    run = node_times("fp16", 2, ranks, ("n1", "n2"))

    result = measured([8, 16], requested=16, times=[run])
    report = result.report()

    captions = [table.caption for table in report.tables]
    table = report.tables[captions.index("Measured step time by node")]
    assert [row[:4] for row in table.rows] == [
        ["fp16", "2 x 8", "n1", "1"],
        ["fp16", "2 x 8", "n2", "1"],
    ]
    said = "rank 15 on n2 (local rank 7), 20.0% slower"
    assert any(said in note for note in report.notes)
    assert json.loads(json.dumps(report.to_dict()))["result"]["stragglers"]


def test_no_more_curves_of_others_are_shown_than_the_chart_has_colours():
    devices = Devices("cuda", 1, "Tesla V100-SXM2-32GB")
    one, several = (
        replace(
            measured([1], devices=devices),
            runs=[
                MeasuredRun(precision, size, 1, "cuda", 1_000.0 * size)
                for precision in precisions
                for size in (1, 2, 4)
            ],
        ).published
        for precisions in (["fp32"], ["fp32", "fp16"])
    )

    assert len(one) == 4
    assert len(one) < len(several) <= len(PUBLISHED_COLOURS)


def test_a_size_that_nbkit_measured_stands_beside_it(store, tmp_path):
    # Runs that no machine made, of a host with the GPUs of a measured row.
    case = replace(SPEED["scaling/one_repeat"], host=H100_NODE)
    for folder in ("written", "data"):
        (tmp_path / folder).mkdir()
    packed = build("scaling/h100", case, tmp_path / "written", tmp_path / "data")
    bundle = tmp_path / "bundle.zip"
    bundle.write_bytes(lzma.decompress(packed))

    result = page.result(Study.open(import_bundle(bundle).study_id))

    one = {row.arm: row for row in result.rows if row.world_size == 1}
    rates = {arm: row.images_per_second.median for arm, row in one.items()}
    expected = [
        f"{arm}, 1 GPU: {wording.rate(rates[arm])} images/s (n=1); nbkit measured "
        f"{theirs} on the same GPU model; these runs reach "
        f"{100 * rates[arm] / rate:.1f}% of that rate."
        for arm, theirs, rate in (
            ("fp16", "4,903 (n=3)", 4_903),
            ("fp32", "956.0 (n=1, cudnn.benchmark on)", 956),
        )
    ]
    assert result.table.notes[:2] == expected
    # There is no row of two GPUs.
    assert not [note for note in result.table.notes[2:] if "nbkit measured" in note]
