"""`nbkit.estimate` projects a whole training from short runs, and says that it does."""

from __future__ import annotations

import json

import pytest

import nbkit
from nbkit.errors import ConfigError, NotEnoughDataError
from nbkit.estimates.forecast import WholeTraining
from nbkit.store.record import write_json
from nbkit.store.stored_runs import StoredRun
from tests.review.trained_run import trained_run

HERE, RATES = 0, 3


@pytest.fixture
def short(tmp_path):
    """Return what writes a short run of ResNet-50: 100 images/s, 25 in evaluation."""

    def write(name="one", **fields):
        config = {"target_accuracy": None, "epochs": 1, "image_size": 224, **fields}
        return trained_run(tmp_path / name, {1: 0.1}, **config)

    return write


def cells(whole, place=HERE):
    return dict(zip(whole.table.columns, whole.table.rows[place], strict=True))


def test_a_short_run_tells_epochs_evaluations_and_start(short):
    whole = nbkit.estimate(short(), price_per_hour=10.0)

    assert isinstance(whole, WholeTraining)
    assert (whole.workload.epochs, len(whole.recipe.epochs_to_target)) == (35, 15)
    found = cells(whole)
    assert found["projected on"] == "1 x NVIDIA A100-SXM4-80GB"
    assert (found["from"], found["images/s"]) == ("1 run", "100.0")
    assert found["per epoch"] == "3.56 h"
    assert found["evaluations"] == "4.44 h"
    assert found["startup"] == "20.0 s"
    hours = 35 * 1_281_167 / 100 / 3600 + 8 * 50_000 / 25 / 3600
    # As of a measured time to target: without the start.
    assert found["cost"] == f"{10 * hours:,.2f} USD"
    assert found["precision"] == "fp32"
    assert found["range"] is None
    notes = " ".join(whole.table.notes)
    assert "no CI from a single run" in notes
    assert "Measured here with synthetic data, fp32, batch 100" in notes
    assert "the recipe's global batch of 3264" in notes
    assert "from the evaluations of the short runs" in notes
    assert "is not fp16 as in the recipe" in notes


def test_several_runs_have_a_range_and_published_rates_have_no_price(short):
    runs = [short("one"), short("two")]

    whole = nbkit.estimate(runs, gpus=["H200"], price_per_hour=10.0)

    assert cells(whole)["from"] == "2 runs"
    assert cells(whole)["range"].startswith("[")
    each = "Images/s of each run, ascending: 1 x NVIDIA A100-SXM4-80GB: 100.0, 100.0."
    assert any(note.endswith(each) for note in whole.table.notes)
    published = cells(whole, 1)
    assert published["from"].endswith(" published")
    assert (published["cost"], published["evaluations"]) == ("–", "–")
    assert whole.table.caption.startswith("Projected: netapp_lars, 35 epochs")
    assert json.loads(json.dumps(whole.to_dict()))["workload"]["epochs_low"] == 34


def test_published_rates_alone_can_be_projected():
    whole = nbkit.estimate(None, "torchvision_sgd", gpus=["V100-SXM2-16GB"])

    assert all(one.origin.startswith("published") for one in whole.estimates)
    assert "90 epochs, the maximum of the recipe" in whole.table.notes[0]
    assert "Projected" in repr(whole)
    # Rates in another format than the recipe's are projected, and it is said.
    half = nbkit.estimate(None, "torchvision_sgd", gpus=["H200"])
    assert cells(half)["precision"] == "fp16"
    assert "is not fp32 as in the recipe" in half.table.notes[-1]


def test_runs_are_given_as_such_or_by_their_ids_and_nothing_is_dropped(
    short, tmp_path, monkeypatch
):
    run = short()
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "one"))

    for given in (run.run_id, [run.run_id], StoredRun(run.paths.root)):
        assert cells(nbkit.estimate(given))["from"] == "1 run"
    for given, said in (([], "empty"), (object(), "object is"), ([3], "int is not")):
        with pytest.raises(ConfigError, match=said):
            nbkit.estimate(given)


def test_runs_that_are_not_alike_are_not_pooled(short):
    others = {"precision": {"precision": "fp16"}, "data": {"data": "/data"}}
    others["batch_size_per_gpu"] = {"worker": {"batch_size_per_gpu": 50}}
    others["compile"] = {"compile": True}
    others["gradient_accumulation_steps"] = {"gradient_accumulation_steps": 2}
    one = short()
    for name, fields in others.items():
        with pytest.raises(ConfigError, match=f"runs differ in {name}"):
            nbkit.estimate([one, short(name, **fields)])


def test_what_says_nothing_of_the_recipe_is_refused(short):
    with pytest.raises(ConfigError, match="model='resnet18' and image_size=224,"):
        nbkit.estimate(short(model="resnet18"))
    with pytest.raises(ConfigError, match="no fixed data set"):
        nbkit.estimate(None, "sgd")
    with pytest.raises(ConfigError, match="Did you mean 'netapp_lars'"):
        nbkit.estimate(None, "netap_lars")
    unmeasured = short("warm")
    lines = unmeasured.paths.metrics.read_text().replace(
        '"warmup":false', '"warmup":true'
    )
    unmeasured.paths.metrics.write_text(lines)
    with pytest.raises(NotEnoughDataError, match="no measured steps"):
        nbkit.estimate(unmeasured)
    shared = short("shared")
    write_json(shared.paths.record, {**shared.record, "launch": {"oversubscribed": 1}})
    with pytest.raises(NotEnoughDataError, match="shared its devices"):
        nbkit.estimate(shared)
