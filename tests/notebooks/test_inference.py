"""The inference notebook under plain papermill, from its parameters to its report."""

from __future__ import annotations

import json
from pathlib import Path

import nbkit
from nbkit.store.predictions import read_predictions
from nbkit.store.record import RunState
from tests.datasets.images import write_folder
from tests.notebooks.executing import UNLIMITED, assert_answer, execute


def test_a_model_is_trained_and_answers_in_fp32_and_bf16(tmp_path, whole_torch):
    data = write_folder(tmp_path / "images", images_per_class=12)

    done = execute(
        "inference",
        tmp_path / "out.ipynb",
        *("-p", "device", "cpu", "-p", "model", "tiny", "-p", "image_size", "32"),
        *("-p", "data", str(data), "-p", "training_steps", "4"),
        *("-p", "precisions", "fp32,bf16", "-p", "batch_sizes", "1,4"),
        *("-p", "batches", "20", "-p", "repeats", "1", "-p", "control", "false"),
        *UNLIMITED,
    )

    assert done.returncode == 0, done.terminal
    assert not [o for o in done.outputs if o.get("name") == "stderr"]
    assert "On a CPU: device=cpu was requested" in done.text
    assert "[1/1] training of the weights: finished" in done.text
    report = done.report
    # Four steps may have taught it nothing: then it is not judged, else undecided.
    assert_answer(report, "On a CPU: bf16 reaches", "accuracy")
    served = report["result"]["served"]
    assert [(one["arm"], one["batch_size"]) for one in served] == [
        *[("fp32", 1), ("fp32", 4), ("bf16", 1), ("bf16", 4)]
    ]
    assert all(one["p95_seconds"]["median"] > 0 for one in served)
    assert all(one["p99_seconds"] is None for one in served)  # of 20 passes
    assert "not enough runs" in str([one["against"] for one in served])
    assert report["result"]["numbers"]["bf16"]["weights"] == "cast to bf16"
    assert (
        "Number formats of weights and operations" in Path(report["page"]).read_text()
    )
    assert json.loads(Path(report["result_file"]).read_text())["answer"]

    runs = {run.config.title: run for run in nbkit.runs()}
    assert {run.state for run in runs.values()} == {RunState.FINISHED}
    trained = runs["inference weights"]
    origins = [
        runs[f"inference {precision}"].record["worker"]["weights"]
        for precision in ("fp32", "bf16")
    ]
    assert {one["run_id"] for one in origins} == {trained.run_id}
    assert origins[0]["sha256"] == origins[1]["sha256"]
    said = read_predictions(runs["inference bf16"].paths.predictions)
    assert said is not None
    assert len(said.files) == 18
    assert trained.record["worker"]["weights"]["source"] == "random"
