"""The chexnet notebook under plain papermill, from its parameters to its report."""

from __future__ import annotations

import random

import pytest
from PIL import Image
from sklearn.metrics import roc_auc_score

import nbkit
from nbkit.datasets.patients import evaluation_patients
from nbkit.launch.run import Run
from nbkit.store.predictions import LabelPredictions, read_predictions
from nbkit.store.record import RunState
from tests.notebooks.executing import UNLIMITED, assert_answer, execute

LINES = "file,patient_id,bright,upper,never,late"


def write_images(root):
    """Write 60 patients with four images each; brightness nearly tells a label.

    Twelve of the patients are for evaluation. One label nobody has, and one only
    patients who are not trained with.
    """
    root.mkdir()
    patients = [f"patient {number}" for number in range(60)]
    unseen = evaluation_patients(patients)
    drawn = random.Random(0)
    lines = [LINES]
    for number in range(240):
        patient, bright, upper = patients[number // 4], number % 2, number // 2 % 2
        image = Image.new("L", (24, 24), 60 + 50 * bright + drawn.randrange(70))
        image.paste(230, (4, 3 if upper else 14, 12, 10 if upper else 21))
        image.save(root / f"{number:03}.png")
        late = int(patient in unseen and bright)
        lines.append(f"{number:03}.png,{patient},{bright},{upper},0,{late}")
    (root / "labels.csv").write_text("\n".join(lines))
    return root / "labels.csv"


def test_areas_stand_beside_the_baseline_and_are_those_of_the_predictions(tmp_path):
    done = execute(
        "chexnet",
        tmp_path / "out.ipynb",
        *("-p", "data", str(write_images(tmp_path / "data"))),
        *("-p", "model", "tiny", "-p", "image_size", "32", "-p", "device", "cpu"),
        *("-p", "global_batch_size", "8", "-p", "epochs", "2", "-p", "repeats", "1"),
        *("-p", "tensorboard", "false", *UNLIMITED),
    )

    assert done.returncode == 0, done.terminal
    assert not [o for o in done.outputs if o.get("name") == "stderr"]
    assert "never: no evaluation image has this label" in done.text
    assert "late: no training image has this label, so it cannot" in done.text
    assert "[2/2]" in done.text
    assert [run.state for run in nbkit.runs()] == [RunState.FINISHED] * 2
    report = done.report
    assert_answer(report, "Mean AUROC")
    assert any("on 2 devices minus 1 device" in note for note in report["notes"])
    assert any("not for medical use" in note for note in report["notes"])
    assert_as_scikit_learn(report["result"])


def assert_as_scikit_learn(result):
    """Compare the report, the predictions and the run's own evaluation."""
    rows = {row["label"]: row for row in result["labels"]}
    assert rows["never"]["single"] is None
    assert rows["late"]["caveat"].endswith("no positive or no negative training image")
    assert rows["bright"]["baseline"]["value"] > 0.7
    assert rows["mean"]["baseline"]["value"] > 0.5
    conditions = result["conditions"]
    assert (conditions["global_batch_size"], conditions["seeds"]) == (8, [0])
    assert "batch_size_per_gpu" not in conditions
    alone = next(one for one in result["trainings"] if one["name"].startswith("1 dev"))
    run: Run = nbkit.attach(alone["run_id"])
    predictions = read_predictions(run.paths.predictions)
    assert isinstance(predictions, LabelPredictions)
    evaluation = run.metrics("evaluation")[-1]
    for label in ("bright", "upper"):
        area = roc_auc_score(predictions.labels[label], predictions.scores[label])
        assert rows[label]["single"]["value"] == pytest.approx(area, abs=1e-12)
        assert evaluation["auroc"][label] == pytest.approx(area, abs=1e-12)
