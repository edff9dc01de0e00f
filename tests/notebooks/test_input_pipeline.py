"""The input pipeline notebook under plain papermill, from parameters to report."""

from __future__ import annotations

import json
from pathlib import Path

import nbkit
from nbkit.store.record import RunState
from tests.notebooks.executing import QUICK, assert_answer, execute


def test_both_pipelines_and_a_tuned_input_feed_an_emulated_gpu(tmp_path):
    done = execute(
        "input_pipeline",
        tmp_path / "out.ipynb",
        *QUICK,
        *("-p", "gpus", "1", "-p", "batch_size_per_gpu", "8"),
        *("-p", "arms", "tuned", "-p", "trials", "1"),
    )

    done.assert_complete()
    assert "Emulated GPU: device=cpu was requested" in done.text
    assert "Not measured: single changes between the two pipelines" in done.text
    assert "new, 10 steps" in done.reported
    assert "Tuner trials: " in done.reported
    assert "[3/3] tuned, 1 rank, repeat 1: finished" in done.text
    report = done.report
    # Which of two loaders is faster on two busy cores is not what is tested here.
    assert_answer(report, "1 emulated GPU: tuned (")
    result = report["result"]
    assert {row["arm"]: row["n"] for row in result["rows"]} == {
        "chexnet_old, 1 rank": 1,
        "chexnet_new, 1 rank": 1,
        "tuned, 1 rank": 1,
    }
    assert result["emulated"]["gpu_name"] == "V100-32GB"
    assert result["sizes"][0]["demand"] == 432
    tuning = result["tuning"]
    [trial] = tuning["trials"]
    runs = {run.run_id: run for run in nbkit.runs()}
    assert trial["run_id"] in runs
    tags = [run.record["tags"] for run in runs.values()]
    assert len({(one.get("arm"), one.get("repeat")) for one in tags}) == 3 + 1
    assert {run.state for run in runs.values()} == {RunState.FINISHED}
    assert json.loads(Path(report["result_file"]).read_text())["answer"]
    assert "cores needed" in Path(report["page"]).read_text()
