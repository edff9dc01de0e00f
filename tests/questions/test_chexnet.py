"""What the chexnet report says follows from what the models said of each image."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from nbkit.datasets.nih import NIH_LABELS
from nbkit.errors import NotEnoughDataError
from nbkit.questions.chexnet.page import ChexnetResult
from nbkit.questions.chexnet.trainings import (
    Training,
    check_planned_images,
    check_same_images,
)
from nbkit.reports.arm_rows import ArmRun
from nbkit.store.predictions import LabelPredictions

FILES = [f"{number:03}.png" for number in range(240)]
PATIENTS = {file: f"p{number // 2}" for number, file in enumerate(FILES)}


def labels_of(names):
    drawn = random.Random(0)
    return {
        name: [int(drawn.random() < 0.4) for _ in FILES]
        if name != "never"
        else [0] * len(FILES)
        for name in names
    }


def scores_of(labels, skill, seed, noise=0.1):
    alike, own = random.Random("alike"), random.Random(seed)
    return {
        label: [
            skill * has + alike.gauss(0, 1) + noise * own.gauss(0, 1) for has in given
        ]
        for label, given in labels.items()
    }


def trained(labels, gpus, seed, skill):
    return Training(
        f"{gpus} devices, seed {seed}",
        seed,
        LabelPredictions(FILES, labels, scores_of(labels, skill, f"{gpus}/{seed}")),
        [(epoch, dict.fromkeys(labels, 0.5 + 0.1 * epoch)) for epoch in (1, 2)],
        ArmRun(f"{gpus}-{seed}", 100.0 * gpus + seed, seconds=9.0, device_type="cuda"),
    )


def judged(*, names=("often", "seldom", "never"), skill=1.0, base=0.0):
    data, gpus, repeats = "/data/labels.csv", 2, 5
    labels = labels_of(names)
    scores = scores_of(labels, base, "base", noise=1.0)
    return ChexnetResult(
        {
            "gpus": gpus,
            "margin": 0.02,
            "data_kind": "multi-label",
            "patients": PATIENTS,
            "baseline": {"files": FILES, "scores": scores},
            "notes": ["said first"],
            "chosen": {"data": data, "epochs": 4},
        },
        [trained(labels, 1, seed, skill) for seed in range(repeats)],
        [trained(labels, gpus, seed, skill) for seed in range(repeats)],
        {"data": data, "model": "densenet121"},
    )


def cells(table, label):
    row = next(row for row in table.rows if row[0] == label)
    return dict(zip(table.columns, row, strict=True))


def test_a_baseline_as_good_as_the_network_is_said_to_be_no_evidence():
    result = judged(skill=1.0, base=1.4)

    assert "so its AUROC is not evidence that it recognises disease" in result.answer
    assert "2 devices minus 1 at the same global batch" in result.answer
    assert "the same within 0.02. Twelve" in result.answer
    assert result.report().untimed == result.answer
    assert cells(result.table, "mean")["finding"] in (
        "not resolved",
        "below the statistics",
    )


def test_a_better_network_uses_more_and_no_more_is_said():
    result = judged(skill=1.6)

    assert cells(result.table, "often")["finding"] == "above the statistics"
    assert "better than a linear model of twelve global statistics" in result.answer
    assert "does not say that it recognises disease" in result.answer


def test_the_baseline_stands_beside_every_table_of_areas():
    result = judged(names=NIH_LABELS)

    mean = result.findings[-1].baseline.value
    assert cells(result.same, "mean")["12 statistics"] == f"{mean:.3f}"
    assert cells(result.trainings, "1 devices, seed 0")["12 statistics"] == (
        f"{mean:.4f}"
    )
    published = cells(result.published_table, "Hernia")
    assert (
        published["12 statistics, here"]
        == cells(result.table, "Hernia")["12 statistics"]
    )
    assert f"dashed: 12 statistics, {mean:.3f}" in str(result.curves.chart.to_dict())


def test_devices_are_compared_by_pairs_alone():
    whole = judged()
    result = replace(whole, parallel=whole.parallel[:3])

    row = cells(result.same, "often")
    paired = replace(whole, single=whole.single[:3], parallel=whole.parallel[:3])
    assert row == cells(paired.same, "often")
    assert row["1 device"] == f"{paired.findings[0].single.value:.3f}"
    assert result.findings[0].single.trainings == 5


@pytest.mark.parametrize("lost", ["baseline", "patients"])
def test_images_that_the_plan_does_not_know_are_refused(lost):
    result = judged()
    plan: dict = {**result.plan}
    if lost == "baseline":
        plan["baseline"] = {**plan["baseline"], "files": FILES[1:]}
    else:
        plan["patients"] = {file: PATIENTS[file] for file in FILES[1:]}

    with pytest.raises(NotEnoughDataError, match="knows 239: the data have changed"):
        check_planned_images(plan, result.single[0])


def test_the_report_says_whose_data_and_makes_no_claim():
    report = judged(names=NIH_LABELS).report()
    page = report.to_html()

    assert "No number here is a medical claim" in page
    assert "NIH Clinical Center" in page
    assert "CVPR 2017" in page
    published = next(t for t in report.tables if t.caption.startswith("Published"))
    assert cells(published, "Pneumonia")["CheXNet 2017"] == "0.768"
    assert json.loads(json.dumps(report.to_dict()))["result"]["verdict"] == "same"


def test_images_without_patients_are_not_counted_as_patients():
    known = judged()
    unknown = replace(known, plan={**known.plan, "patients": {}})

    assert cells(known.table, "often")["patients"] is not None
    assert "patients" not in unknown.table.columns
    assert len(unknown.table.columns) == len(unknown.table.rows[0])
    page = unknown.report().to_html()
    assert "The mean covers labels that 10 images or more have" in page
    assert "over images and trainings" in str(unknown.figure.chart.to_dict())
    assert "over patients and trainings" in str(known.figure.chart.to_dict())


def test_trainings_that_saw_other_images_are_not_compared():
    labels = labels_of(["often"])
    one, other = (trained(labels, 1, seed, 1.0) for seed in (0, 1))
    changed = Training(
        "b",
        1,
        LabelPredictions(FILES[:-1], labels, other.predictions.scores),
        [],
        other.run,
    )

    with pytest.raises(NotEnoughDataError, match="b was evaluated with 239 images"):
        check_same_images([one, changed])


def test_the_rates_of_few_trainings_are_shown_beside_their_interval():
    [_, runs] = judged().speed.notes

    assert "1 device: 100.0, 101.0, 102.0, 103.0, 104.0; 2 devices: 200" in runs
