"""What the chexnet report says of images, models and trainings that were lost."""

from __future__ import annotations

import itertools
import shutil

import pytest

import nbkit
from nbkit.datasets.nih import NIH_LABELS
from nbkit.errors import NotEnoughDataError
from nbkit.questions import chexnet
from nbkit.questions.study_report import make
from nbkit.store.predictions import (
    LabelPredictions,
    read_predictions,
    write_predictions,
)
from tests.questions.conftest import LOST

BOTH = ("1 device", "2 devices")


def cells(table, label):
    row = next(row for row in table.rows if row[0] == label)
    return dict(zip(table.columns, row, strict=True))


def test_answer_baseline_as_good_as_network(golden):
    said = chexnet.result(golden("chexnet/gpu")).single[0].predictions

    def equal(plan):
        plan["baseline"] |= {"files": [*said.files], "scores": said.scores}

    answer = chexnet.result(golden("chexnet/gpu", equal)).answer

    assert "not shown to be better, so the AUROC is not evidence" in answer


def test_images_without_patients(golden):
    def unknown(plan):
        plan["patients"] = {}

    known = chexnet.result(golden("chexnet/gpu"))
    found = chexnet.result(golden("chexnet/gpu", unknown))

    tables = [result.report().tables[0] for result in (known, found)]
    assert {*tables[0].columns} - {*tables[1].columns} == {"patients"}
    assert "over patients and training runs" in str(known.figure.chart.to_dict())
    assert "over images and training runs" in str(found.figure.chart.to_dict())
    assert "10 or more positive and negative images" in " ".join(found.report().method)


@pytest.mark.parametrize("name", ["baseline", "patients"])
def test_images_that_the_plan_does_not_know_are_refused(golden, name):
    def forget(plan):
        if name == "patients":
            plan["patients"].popitem()
        else:
            plan["baseline"]["files"].pop()

    with pytest.raises(NotEnoughDataError, match="lacks 1 of 120 evaluation images"):
        chexnet.result(golden("chexnet/gpu", forget))


def test_trainings_that_saw_other_images_are_refused(golden):
    study = golden("chexnet/gpu")
    path = study.runs_by_arm()[BOTH[0]][1].paths.predictions
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))

    with pytest.raises(NotEnoughDataError, match="evaluated on different images"):
        chexnet.result(study)


def test_devices_are_compared_by_pairs_alone(golden):
    study = golden("chexnet/gpu")
    for run in study.runs_by_arm()[BOTH[1]][3:]:
        shutil.rmtree(run.paths.root)

    found = chexnet.result(study)

    mean = found.findings[-1]
    assert (mean.single.trainings, mean.difference.trainings) == (5, 3)
    for run in study.runs_by_arm()[BOTH[0]][3:]:
        shutil.rmtree(run.paths.root)
    paired = chexnet.result(study)
    assert cells(found.same, "mean") == cells(paired.same, "mean")


def test_published_areas_of_nih_labels(golden):
    def renamed(values):
        return dict(zip(NIH_LABELS, itertools.cycle(values.values()), strict=False))

    def rename(plan):
        scores = plan["baseline"]["scores"]
        plan["baseline"]["scores"] = renamed({n: scores[n] for n in [*scores][:3]})

    study = golden("chexnet/one_repeat", rename)
    for runs in study.runs_by_arm().values():
        said = read_predictions(runs[0].paths.predictions)
        assert isinstance(said, LabelPredictions)
        labels = {name: said.labels[name] for name in [*said.labels][:3]}
        scores = {name: said.scores[name] for name in labels}
        again = LabelPredictions(said.files, renamed(labels), renamed(scores))
        write_predictions(runs[0].paths.predictions, again)

    found = chexnet.result(study)

    report = found.report()
    row = cells(report.tables[-1], "Pneumonia")
    assert row["CheXNet 2017"] == "0.768"
    own = cells(report.tables[0], "Pneumonia")
    assert row["12 statistics, here"] == own["12 statistics"]
    assert "NIH Clinical Center" in " ".join(one.text for one in report.sources)
    assert "from this data set: NIH places no" in " ".join(report.method)


@pytest.mark.parametrize(
    ("arm", "answer"),
    [(BOTH[1], "Mean AUROC 0."), (BOTH[0], "No comparison: the baseline diverged")],
)
def test_answer_one_training_that_is_not_finite(golden, lose, arm, answer):
    study = golden("chexnet/cpu")
    lose(study.runs_by_arm()[arm][:1])

    report = make(study)

    assert report.answer.startswith(f"Diverged: {arm} ({LOST}). ")
    assert answer in report.answer
    assert "devices and 1 device" not in report.answer
    assert "equal within" not in str(report.tables)
    assert report.result["verdict"] is None


@pytest.mark.parametrize("arms", [BOTH[:1], BOTH])
def test_a_notebook_without_a_finite_training_arrives_at_its_report(golden, lose, arms):
    study = golden("chexnet/cpu")
    for arm in arms:
        lose(study.runs_by_arm()[arm])

    report = nbkit.report(study).report

    assert "divergence" in {one.code for one in nbkit.audit(study)}
    assert report.answer.startswith("Diverged: 1 device")
    assert "lower learning_rate" in str(report.next_step)


def test_without_a_finite_training_on_several_devices_the_report_says_so(golden, lose):
    study = golden("chexnet/cpu")
    lose(study.runs_by_arm()[BOTH[1]])

    [said] = chexnet.result(study).same.sentences
    assert said.startswith("No pair of training runs finished")
    assert "Use gpus=2 or more" not in said
    assert make(study).answer.startswith(f"Diverged: {BOTH[1]} ({LOST}). ")
