"""What the time_to_accuracy report says follows from what the seeds reached."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import nbkit
from nbkit.errors import NotEnoughDataError
from nbkit.questions.time_to_accuracy.page import result as read
from nbkit.questions.time_to_accuracy.page import whole_training
from nbkit.studies.order import of_repeat
from tests.questions.conftest import LOST, edit_metrics
from tests.review.trained_run import trained_run


def cells(table, place=0):
    return dict(zip(table.columns, table.rows[place], strict=True))


def test_without_a_run_of_the_first_recipe_no_other_takes_its_place(store):
    arms = {name: nbkit.ExperimentConfig(name=name) for name in ("sgd", "lars")}
    study = nbkit.Study.create("half", arms, kind="time_to_accuracy", repeats=1)
    run = trained_run(store, {1: 0.8})
    entry = {"arm": "lars", "repeat": 0, "run_id": run.run_id, "start": 0}
    content = json.loads(study.paths.study.read_text())
    study.paths.study.write_text(json.dumps({**content, "runs": [entry]}))

    with pytest.raises(NotEnoughDataError, match=r"Baseline 'sgd' .* no finished run"):
        read(nbkit.Study.open(study.study_id))


def test_short_runs_on_two_kinds_of_gpus_cost_their_projection_and_not_the_report(
    tmp_path,
):
    names = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"
    devices = [{"rank": 0, "uuid": "GPU-0"}]
    config = {"target_accuracy": None, "epochs": 1, "image_size": 224}
    short = [
        trained_run(
            tmp_path / name,
            {1: 0.1},
            worker={"devices": [{**devices[0], "name": name}]},
            **config,
        )
        for name in names
    ]

    whole = whole_training(
        short, {"estimate_recipe": "netapp_lars", "estimate_for": ["H200"]}
    )

    assert {one.origin for one in whole.estimates} == {"published rate, projected"}
    [why] = [note for note in whole.table.notes if "cannot be projected" in note]
    assert f"runs differ in device ({', '.join(names)})" in why


@pytest.mark.parametrize(("plan", "seed"), [({"seed_per_repeat": True}, 6), ({}, 4)])
def test_every_repeat_has_a_seed_of_its_own_where_the_plan_says_so(plan, seed):
    assert of_repeat({"seed": 4, "gpus": 2}, 2, plan) == {"seed": seed, "gpus": 2}


def test_answer_recipe_that_never_reached_the_target(golden):
    study = golden("time_to_accuracy/gpu")
    edit_metrics(
        study.runs_by_arm()["lars"],
        lambda line: line.update(top1_accuracy=0.1),
        "evaluation",
    )

    found = read(study)

    lars = cells(found.table, 1)
    assert (lars["median time"], lars["cost"], lars["epochs"]) == ("–", "–", None)
    assert "lars missed the target with 5 seeds in" in found.answer
    assert found.untimed.endswith("; lars – (0 of 5 seeds).")


def test_answer_other_differences_of_recipes(golden):
    found = read(golden("time_to_accuracy/gpu"))
    assert "also differ" not in found.answer
    half = found.configs["lars"].model_copy(update={"precision": "fp16"})

    mixed = replace(found, configs={**found.configs, "lars": half})
    alone = replace(found, recipes=found.recipes[:1])

    assert mixed.answer.endswith(
        "also differ in number format (sgd fp32, lars fp16), which affects the times."
    )
    settings = alone.report().tables[2]
    assert ["optimizer", "sgd"] in settings.rows
    assert "ratio" not in alone.answer


@pytest.mark.parametrize(("lost", "other"), [("sgd", "lars"), ("lars", "sgd")])
def test_answer_recipe_that_is_not_finite(golden, lost, other):
    found = read(golden("time_to_accuracy/gpu"))
    recipes = tuple(
        replace(one, nonfinite=LOST if one.recipe == lost else None)
        for one in found.recipes
    )

    found = replace(found, recipes=recipes)

    assert lost not in found.answer
    assert f"top-1: {other} " in found.answer
    assert found.verdicts == {"lars": f"no verdict, {lost}: {LOST}"}
    assert cells(found.table, 1)["median time"] is not None
    assert cells(found.table, 1)["time ratio"] is None


def test_verdicts_of_many_recipes_hold_together(golden):
    found = read(golden("time_to_accuracy/gpu"))
    first = found.recipes[0]
    equal = [replace(first, recipe=f"sgd {number}") for number in range(3)]

    many = replace(found, recipes=(first, *equal))

    assert {one.comparisons for one in many.verdicts.values()} == {3}
    assert many.table.notes[-1].endswith("(Holm).")
    assert not any("Holm" in note for note in found.table.notes)
