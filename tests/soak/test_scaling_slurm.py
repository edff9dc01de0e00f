"""The scaling notebook over the two nodes of a real Slurm, with CPU processes."""

from __future__ import annotations

import json
from pathlib import Path

import nbkit
from nbkit.reports.renderer import REPORT_MIME
from nbkit.store.paths import studies_folder
from nbkit.store.record import RunState
from tests.launch.conftest import plugins, store
from tests.notebooks.executing import QUICK, assert_answer, execute

__all__ = ["plugins", "store"]


def test_a_report_over_two_nodes_names_them_and_projects_nothing(
    tmp_path, monkeypatch, empty_slurm
):
    done = execute(
        "scaling",
        tmp_path / "out.ipynb",
        *QUICK,
        *("-p", "engine", "slurm", "-p", "nnodes", "2", "-p", "gpus", "2"),
        *("-p", "model", "tiny", "-p", "timeout_min", "20"),
        *("-p", "slurm", json.dumps({"slurm_partition": "debug", "mem_gb": 2})),
    )

    assert done.returncode == 0, f"{done.terminal}\n{done.text}"
    assert "Sizes: 1, 2, 2 x 2 processes" in done.text
    assert "Slurm: each run is a separate job in partition debug" in done.text
    assert "[4/4] fp32, 2 x 2 processes, repeat 1: finished" in done.text
    assert "All-reduce between 4 ranks on 2 nodes" in done.reported
    assert "No projection: CPU runs" in done.reported
    answer = done.cells[-1].outputs[-1].data
    report = answer[REPORT_MIME]
    assert_answer(
        report,
        "CPU smoke test: fp32 on 2 x 2 CPU processes: ",
        "relative to one node",
    )
    assert "on nodes n1, n2" in Path(report["page"]).read_text()
    sizes = [
        (row["world_size"], row["results"]["fp32"]["nnodes"])
        for row in report["result"]["rows"]
    ]
    assert sizes == [(1, 1), (2, 1), (4, 2)]
    across = report["result"]["rows"][-1]["results"]["fp32"]
    assert across["node_efficiency"] > 0
    assert across["communication_share"] > 0
    nodes = report["result"]["nodes"]
    assert [(row["node"], row["world_size"], row["runs"]) for row in nodes] == [
        ("n1", 4, 1),
        ("n2", 4, 1),
    ]

    runs = nbkit.runs()
    assert {run.state for run in runs} == {RunState.FINISHED}
    [widest] = [
        run for run in runs if run.config.task == "train" and run.config.nnodes == 2
    ]
    assert [rank["node"] for rank in widest.worker["ranks"]] == ["n1", "n1", "n2", "n2"]
    assert {path.stem for path in (widest.paths.root / "system").iterdir()} == {
        "n1",
        "n2",
    }
    assert widest.config.slurm.timeout_min == 20

    # The bundle needs neither the cluster nor its nodes.
    [study] = studies_folder().iterdir()
    bundle = nbkit.export(study.name, tmp_path / "study.zip")
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "elsewhere"))
    nbkit.import_bundle(bundle)
    again = nbkit.report(study.name)
    assert again.report.answer == report["answer"]
    assert json.loads(json.dumps(again.report.result)) == report["result"]
