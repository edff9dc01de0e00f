"""The time_to_accuracy notebook under plain papermill, from parameters to report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

import nbkit
from nbkit.store.paths import studies_folder
from nbkit.store.record import RunState
from tests.launch.conftest import shared_store
from tests.notebooks.executing import UNLIMITED, assert_answer, execute

__all__ = ["shared_store"]

COLOURS = {"blue": (20, 40, 220), "red": (220, 40, 20)}
IMAGES = {"train": 24, "val": 6}


@pytest.fixture(scope="module")
def done(shared_store, tmp_path_factory):
    """Return the executed notebook: two recipes with a seed each, told apart."""
    folder = tmp_path_factory.mktemp("notebook")
    for split, count in IMAGES.items():
        for name, (red, green, blue) in COLOURS.items():
            target = folder / "data" / split / name
            target.mkdir(parents=True)
            for number in range(count):
                colour = (red, green + number, blue)
                Image.new("RGB", (24, 24), colour).save(target / f"{number}.png")
    return execute(
        "time_to_accuracy",
        folder / "out.ipynb",
        *("-p", "data", str(folder / "data"), "-p", "model", "tiny"),
        *("-p", "image_size", "16", "-p", "batch_size_per_gpu", "8"),
        *("-p", "target_accuracy", "0.9", "-p", "epochs", "4", "-p", "repeats", "1"),
        *("-p", "device", "cpu", "-p", "estimate_steps", "0"),
        *("-p", "price_per_hour", "3.6", *UNLIMITED),
    )


@pytest.fixture
def report(done):
    return done.report


@pytest.fixture
def runs(done):
    """Return the runs of the study."""
    [study] = studies_folder().iterdir()
    by_arm = nbkit.Study.open(study.name).runs_by_arm()
    return [run for many in by_arm.values() for run in many]


@pytest.fixture(autouse=True)
def store(shared_store):
    """Look at the runs of the notebook, in the store that it shares."""


def test_it_comes_to_its_end_with_a_chart_and_an_answer(done, report):
    done.assert_complete()
    assert_answer(report, "CPU smoke test: To 90% top-1: sgd ")
    assert json.loads(Path(report["result_file"]).read_text())["answer"]


def test_every_recipe_is_a_training_that_stopped_at_the_target(report, runs):
    seeds = {(run.config.optimizer, run.config.seed) for run in runs}
    assert seeds == {("sgd", 0), ("lars", 0)}
    assert [run.state for run in runs] == [RunState.FINISHED] * 2
    sgd = report["result"]["recipes"]["sgd"]
    assert (sgd["times"]["n"], sgd["times"]["reached"]) == (1, 1)
    [one] = sgd["runs"]
    accuracies = [point["accuracy"] for point in one["curve"]]
    assert accuracies[-1] >= 0.9 > max([0.0, *accuracies[:-1]])
    assert one["epochs"] == len(accuracies)
    # Two classes, of which no batch is left unfilled.
    assert one["images"] == one["epochs"] * 2 * IMAGES["train"]
    assert 0 < one["evaluation_seconds"] < one["seconds"]
    assert one["startup_seconds"] > 0


def test_cost_and_verdict_follow_from_the_times(report):
    headline = report["tables"][0]
    sgd = dict(zip(headline["columns"], headline["rows"][0], strict=True))
    seconds = report["result"]["recipes"]["sgd"]["times"]["median"]
    assert float(sgd["cost"].split()[0]) == pytest.approx(seconds / 1000, rel=0.06)
    verdict = report["result"]["verdicts"]["lars"]
    reached = report["result"]["recipes"]["lars"]["times"]["reached"]
    if reached:
        assert verdict["verdict"] == "not enough runs"
    else:
        assert verdict.startswith("verdict withheld")


def test_published_rates_are_projected_apart_from_what_was_measured(done, report):
    captions = [table["caption"] for table in report["tables"]]
    [projected] = [one for one in captions if one.startswith("Projected: ")]
    assert "35 epochs of 1,281,167 images" in projected
    assert "from published rates only (estimate_steps=0)" in done.text
    assert "34.9 min" in done.reported


def test_every_training_has_its_log_in_the_form_of_mlperf(runs):
    [run] = [run for run in runs if run.config.optimizer == "sgd"]
    study = nbkit.Study.open(run.record["tags"]["study"])
    log = (study.paths.root / "mllog" / "sgd-seed-0.txt").read_text()
    assert log == nbkit.mllog(run, division="open")
    assert '"key": "run_stop"' in log
    assert '{"status": "success"}' in log
