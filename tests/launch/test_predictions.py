"""What the ranks of a run said of every evaluation image, in the manifest's order.

And what is made of it, which does not depend on how many they are.
"""

import csv
import random

import pytest

import nbkit
from nbkit.store.predictions import LabelPredictions, read_predictions
from tests.datasets.images import picture
from tests.training import train_here


def test_predictions_of_labels(small, tmp_path):
    drawn = random.Random(1)
    rows = [["file", "split", "odd", "even"]]
    for number in range(31):
        picture(number).save(tmp_path / f"{number:02}.png")
        split = "train" if number < 12 else "val"
        rows.append([f"{number:02}.png", split, drawn.randrange(2), drawn.randrange(2)])
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)

    # So slow that the weights stay as they are.
    config = small(
        data=str(tmp_path / "labels.csv"),
        steps=1,
        warmup_steps=0,
        learning_rate=1e-12,
        evaluation_period_epochs=1,
    )
    alone = train_here(config)
    shared = nbkit.launch(config.replace(gpus=2)).wait()

    one, two = (read_predictions(run.paths.predictions) for run in (alone, shared))
    assert isinstance(one, LabelPredictions)
    assert isinstance(two, LabelPredictions)
    given = {row[0]: row[2:] for row in rows[1:] if row[1] == "val"}
    assert [*one.files] == [*two.files] == [*given]
    assert one.labels == two.labels
    assert [*zip(*one.labels.values(), strict=True)] == [*map(tuple, given.values())]
    for label, scores in one.scores.items():
        assert two.scores[label] == pytest.approx(scores, rel=1e-5, abs=1e-6)
        assert len({*scores}) > 10, "equal scores would hide a wrong order"
    (by_one,), (by_two,) = (run.metrics("evaluation") for run in (alone, shared))
    assert by_one["images"] == by_two["images"] == 19
    assert by_two["auroc"] == pytest.approx(by_one["auroc"], abs=1e-9)
    assert by_two["loss"] == pytest.approx(by_one["loss"], rel=1e-6)
    assert 0 < by_one["mean_auroc"] < 1
