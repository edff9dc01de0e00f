"""What the scaling report says follows from what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from nbkit.questions.scaling.nodes import node_times
from nbkit.questions.scaling.page import ScalingResult
from nbkit.questions.scaling.planning import ScalingPlan
from nbkit.questions.scaling.throughput import MeasuredRun
from nbkit.reports.bandwidth import Bandwidth
from nbkit.reports.bandwidth import bandwidth as read_bandwidth
from nbkit.reports.chart_style import PUBLISHED_COLOURS
from nbkit.reports.renderer import Note, Table
from nbkit.statistics import allreduce_timing
from nbkit.statistics import quantities as wording
from nbkit.store.nonfinite import NonFinite
from nbkit.studies.devices import Devices

A100 = Devices("cuda", 4, "NVIDIA A100-SXM4-80GB")
NO_EXCHANGE = Bandwidth([], 1, "cuda")


def measured(
    sizes,
    *,
    devices=A100,
    data_wait_share=0.01,
    chosen=None,
    asked=8,
    times=(),
    **facts,
):
    """Return the result of a study with three runs of every size.

    8 GPUs a node are asked for.
    """
    plan = ScalingPlan(
        arms={},
        allreduce=None,
        devices=devices,
        asked=asked,
        measured=max(sizes),
        gpus_per_node=8,
        repeats=3,
        environment={},
        notes=("said first",),
        chosen=chosen or {},
    )
    runs = [
        MeasuredRun(
            arm="fp16",
            world_size=size,
            nnodes=max(1, size // 8),
            device_type=devices.device_type,
            images_per_second=2500 * size * (1 - 0.01 * (size - 1)) + repeat,
            data_wait_share=data_wait_share,
            communication_share=None,
            peak_memory_bytes=22 * 2**30,
            cpu_ms_per_image=1.25,
        )
        for size in sizes
        for repeat in range(3)
    ]
    return ScalingResult(plan, runs, {"model": "resnet50", **facts}, times)


def test_the_table_has_every_size_and_a_dash_for_the_unknown():
    table = measured([1, 2]).table

    first, second = (dict(zip(table.columns, row, strict=True)) for row in table.rows)
    assert first["GPUs"] == "1"
    assert second["images/s"] == "4,951"
    assert second["95 % interval (runs)"].endswith("(3)")
    assert second["efficiency"] == "99.0 %"
    assert second["communication"] == "–"
    assert second["memory per GPU"] == "22.0 GiB"
    assert second["CPU ms/image"] == "1.25"


def test_one_measured_size_is_not_projected_and_the_reason_is_said():
    result = measured([1])

    assert isinstance(result.projection, Note)
    assert "at least 2 GPU counts" in result.projection.sentences[0]
    assert any("at least 2 GPU counts" in note for note in result.notes)


def test_cpu_processes_are_never_projected_and_never_called_gpus():
    result = measured([1, 2], devices=Devices("cpu", 2))

    assert isinstance(result.projection, Note)
    assert "functional" in result.table.caption
    assert "processes" in result.table.columns
    assert result.report(NO_EXCHANGE).answer.startswith("CPU, functional")
    assert isinstance(result.context, Table)
    assert all("V100" in (row[0] or "") for row in result.context.rows)


def test_a_gpu_nobody_has_published_is_said_to_have_no_context():
    context = measured([1], devices=Devices("cuda", 1, "Imaginary 9000")).context

    assert isinstance(context, Note)
    assert "Imaginary 9000" in context.sentences[0]


@pytest.mark.parametrize(("share", "is_said"), [(0.02, False), (0.4, True)])
def test_a_starved_input_is_pointed_out(share, is_said):
    notes = measured([1, 2], data_wait_share=share).table.notes

    assert any("Input-bound" in note for note in notes) is is_said
    assert any(" on 1 GPU; these" in note for note in notes) is is_said


def test_only_an_all_reduce_that_is_measured_once_tells_the_bandwidth():
    row = {"message_bytes": 2**20, "times_seconds": [0.001] * 3, "world_size": 2}
    rows = {"short run": [], "all-reduce": [row]}
    arms = {
        "short run": SimpleNamespace(task="train", world_size=1, nnodes=1),
        "all-reduce": SimpleNamespace(task="allreduce", world_size=2, nnodes=1),
    }
    runs = {
        name: [
            SimpleNamespace(
                config=arms[name],
                summary=SimpleNamespace(device_type="cuda"),
                metrics=lambda kind, found=found: found,
            )
        ]
        for name, found in rows.items()
    }
    study: Any = SimpleNamespace(once=[*arms], arms=arms, runs_by_arm=lambda: runs)

    assert read_bandwidth(study).rows == [allreduce_timing(row)]
    study.once = ["short run"]
    assert read_bandwidth(study) == Bandwidth([], 1, "cpu", is_missing=False)


def test_bandwidth_names_its_best_message_and_one_device_has_none():
    row = {"message_bytes": 2**20, "world_size": 2, "times_seconds": [1e-3] * 3}

    bandwidth = Bandwidth([allreduce_timing(row)], 2, "cpu")

    assert "up to 1.05 GB/s bus bandwidth, with messages of 1 MiB" in (
        bandwidth.note.to_text()
    )
    assert bandwidth.table.rows == [["1 MiB", "1", "1 to 1", "1.05", "1.05"]]
    assert bandwidth.table.values["message_bytes"] == [2**20]
    assert len(bandwidth.figures) == 1
    assert "only one device" in NO_EXCHANGE.note.to_text()
    assert NO_EXCHANGE.figures == []


def test_the_next_step_keeps_what_was_chosen():
    chosen = {"gpus": 2, "loader": "dali", "data": "/my images"}

    step = measured([1, 2], chosen=chosen).report(NO_EXCHANGE).next_step

    assert step.endswith("out.ipynb -p loader dali -p data '/my images' -p gpus 8")


def test_the_next_step_asks_for_gpus_of_one_node():
    chosen = {"gpus": 8, "nnodes": 2}

    step = measured([1, 8], chosen=chosen, asked=16).report(NO_EXCHANGE).next_step

    assert step.startswith("on 16 GPUs: ")
    assert step.endswith("out.ipynb -p nnodes 2 -p gpus 8")


def test_two_nodes_are_not_extended_and_the_report_says_what_would_be_needed():
    result = measured([1, 2, 4, 8, 16], asked=16, chosen={"nnodes": 2})

    report = result.report(NO_EXCHANGE)

    assert isinstance(result.projection, Note)
    assert any("No projection to 32 GPUs" in note for note in report.notes)
    assert any("measure on 2 and on 4 nodes" in note for note in report.notes)
    assert report.next_step.startswith("on 4 nodes, to project further: ")
    assert report.next_step.endswith("-p nnodes 4 -p gpus 8")


def test_two_points_across_nodes_are_extended_to_more_nodes_than_were_asked_for():
    projection = measured([1, 2, 4, 8, 16, 32], asked=32).projection

    assert isinstance(projection, Table)
    assert [row[1] for row in projection.rows] == ["64", "128"]


def test_sizes_across_nodes_are_named_and_held_against_one_node():
    table = measured([1, 8, 16], asked=16).table

    one, eight, across = (
        dict(zip(table.columns, row, strict=True)) for row in table.rows
    )
    assert across["GPUs"] == "2 x 8"
    assert across["against one node"] == wording.percent(
        across_rate(16) / across_rate(8)
    )
    assert (one["against one node"], eight["against one node"]) == (None, None)
    assert table.values["nnodes"] == [1, 1, 2]
    assert "against one node" not in measured([1, 2]).table.columns


def across_rate(size):
    return 1 - 0.01 * (size - 1)


def test_gpus_of_a_queue_are_known_from_the_runs():
    result = measured(
        [1, 2], devices=Devices("cuda", 8), device_name="NVIDIA A100-SXM4-80GB"
    )

    assert isinstance(result.context, Table)
    assert all("A100" in (row[0] or "") for row in result.context.rows)


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

    result = measured([8, 16], asked=16, times=[run])
    report = result.report(NO_EXCHANGE)

    table = result.ranks
    assert isinstance(table, Table)
    assert [row[:4] for row in table.rows] == [
        ["fp16", "2 x 8", "n1", "1"],
        ["fp16", "2 x 8", "n2", "1"],
    ]
    said = "rank 15 on n2 (local rank 7) needs 20.0 % longer"
    assert any(said in note for note in report.notes)
    assert "Measured by node" in [table.caption for table in report.tables]
    assert json.loads(json.dumps(report.to_dict()))["result"]["stragglers"]


def test_ranks_that_keep_up_are_said_to():
    even = node_times(
        "fp16",
        1,
        [
            {
                "rank": rank,
                "steps": 1,
                "step_time_seconds": 1.0,
                "data_wait_seconds": 0.0,
                "communication_exposed_seconds": 0.1,
            }
            for rank in range(2)
        ],
    )

    assert "No rank needs 5 % longer" in measured([1, 2], times=[even]).ranks.to_text()
    assert "does not wait for others" in measured([1]).ranks.to_text()


def test_the_notes_say_which_images_and_what_on():
    train = {1: 496, 2: 480}
    images = {"files": 500, "classes": 8, "unreadable": 4, "train": train}
    facts = {"dali": "2.4.0", "usable_cpus": 2.0, "file_system": "ext4"}

    notes = measured([1, 2], images=images, **facts).method

    assert any(
        "500 of 8 classes, 4 of them unreadable and left out; an epoch trains with "
        "496 on 1 rank and 480 on 2 ranks" in note
        for note in notes
    )
    assert "2 usable CPUs, data on ext4" in notes[-1]
    assert "dali 2.4.0" in notes[-1]


def test_a_precision_that_is_not_finite_has_no_efficiency_and_no_projection():
    result = measured([1, 2, 4])
    assert result.outlooks["fp16"].projections

    found = replace(result, not_finite={"fp16": NonFinite("loss", 3)})
    report = found.report(NO_EXCHANGE)

    assert report.answer == ""
    assert (found.outlooks, found.counted, report.figures) == ({}, [], [])
    assert [row[2] for row in report.tables[0].rows] == [
        row[2] for row in result.table.rows
    ]
    column = [*report.tables[0].columns].index("efficiency")
    assert [row[column] for row in report.tables[0].rows] == ["–"] * 3
    cell = report.result["rows"][1]["results"]["fp16"]
    assert cell["images_per_second"] is not None
    assert (cell["speedup"], cell["efficiency"]) == (None, None)


def test_the_fastest_precision_is_one_that_stayed_finite():
    result = measured([1, 2])
    runs = [
        *(replace(run, arm="fp32") for run in result.runs),
        *(replace(run, images_per_second=2e4) for run in result.runs),
    ]

    found = replace(result, runs=runs, not_finite={"fp16": NonFinite("loss", 3)})

    assert "fp16" not in found.report(NO_EXCHANGE).answer
    assert not any("fp16" in note for note in found.certainty.notes)


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
