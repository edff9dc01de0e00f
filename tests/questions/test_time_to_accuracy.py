"""What the time_to_accuracy report says follows from what the seeds reached."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import nbkit
from nbkit.errors import NotEnoughDataError
from nbkit.questions.time_to_accuracy.page import TimeToAccuracyResult, _whole
from nbkit.questions.time_to_accuracy.page import result as read
from nbkit.questions.time_to_accuracy.tables import printed_times
from nbkit.recipes.training import training_recipe
from nbkit.review.milestones import RecipeTimes
from nbkit.store.nonfinite import NonFinite
from nbkit.studies.order import of_repeat
from tests.questions.test_time_to_accuracy_chart import trained
from tests.review.trained_run import trained_run

REACHED = [0.3, 0.6, 0.8]
NEVER = [0.3, 0.5, 0.7]
LOST = NonFinite("loss", 3)


def measured(*, sgd=None, lars=None, is_cpu=False, repeats=5, **facts):
    """Return a result of both small recipes; of lars each epoch takes half as long."""
    runs = {
        "sgd": sgd or [REACHED] * repeats,
        "lars": lars or [REACHED] * repeats,
    }
    seconds = {"sgd": 600.0, "lars": 300.0}
    return TimeToAccuracyResult(
        recipes=tuple(
            RecipeTimes(
                name,
                tuple(
                    trained(number, curve, seconds=seconds[name] * (1 + 0.01 * number))
                    for number, curve in enumerate(curves)
                ),
            )
            for name, curves in runs.items()
        ),
        configs={
            name: nbkit.ExperimentConfig(**training_recipe(name).fields)
            for name in runs
        },
        whole=nbkit.estimate(None, gpus=["A100-SXM4-80GB", "H100-SXM-80GB"]),
        plan={
            "notes": ["said first"],
            "chosen": {"repeats": 3},
            "price_per_hour": 12.0,
            "currency": "EUR",
            **facts,
        },
        repeats=repeats,
        conditions={"model": "resnet20", "study_id": "a study", "started": "now"},
        is_cpu=is_cpu,
    )


def cells(table, place=0):
    return dict(zip(table.columns, table.rows[place], strict=True))


def test_a_seed_that_never_got_there_withholds_the_verdict_and_stays_in_the_table():
    result = measured(lars=[REACHED] * 4 + [NEVER])

    assert cells(result.table, 1)["reached"] == "4 of 5"
    assert cells(result.table, 1)["verdict"] == "withheld"
    assert "; lars 3 (4 of 5 seeds reached it)." in result.report().untimed
    assert "4 of 5 seeds reached it" in result.answer
    assert "verdict withheld, because 1 of 5 seeds of lars" in result.answer
    last = cells(result.seeds, 9)
    assert last["time to target"] == "not within 15.6 min"
    assert (last["epochs"], last["best top-1"]) == (None, "70.0 %")
    assert last["cost"] == "at least 3.12 EUR"


def test_a_recipe_that_never_got_there_has_no_time_at_all():
    result = measured(lars=[NEVER] * 5)

    lars = cells(result.table, 1)
    assert (lars["median time"], lars["cost"], lars["epochs"]) == ("–", "–", None)
    assert "lars did not reach it in 5 seeds of" in result.answer
    assert result.untimed.endswith("; lars – (0 of 5 seeds reached it).")


def test_cpus_are_functional_and_the_next_step_is_the_question_of_the_report():
    report = measured(is_cpu=True).report()

    assert report.answer.startswith("CPU, functional: ")
    assert "(functional)" in report.tables[0].caption
    assert "-p recipes torchvision_sgd,netapp_lars" in report.next_step
    chosen = {"repeats": 2, "precision": "fp32", "evaluation_period_epochs": 1}
    small = measured(is_cpu=True, repeats=2, chosen=chosen).report().next_step
    assert "-p repeats 5" in small
    assert "precision" not in small
    assert "evaluation_period" not in small
    assert "-p data /path/to/imagenet -p gpus 8" in report.next_step


def test_what_others_published_has_its_own_statistic():
    table = measured().published

    netapp = [row for row in table.rows if row[0].startswith("NetApp")]
    assert [row[1] for row in netapp] == ["34.9 min", "34.4 min"]
    assert [seconds for _, seconds in printed_times()] == [34 * 60 + 54, 34 * 60 + 21]
    assert all("1 run" in row[3] for row in netapp)
    others = [row for row in table.rows if row not in netapp]
    assert len(others) == 2
    assert all("olympic mean" in row[3] for row in others)


def test_the_settings_say_what_differs_and_what_does_not():
    table = measured().settings

    found = {row[0]: row[1:] for row in table.rows}
    assert found["optimizer"] == ["sgd", "lars"]
    assert found["label_smoothing"] == ["0", "0.1"]
    assert "momentum=0.9" in table.notes[0]
    assert "global batch=" in table.notes[0]
    one = measured()
    assert "also differ" not in one.answer
    half = one.configs["lars"].model_copy(update={"precision": "fp16"})
    mixed = replace(one, configs={**one.configs, "lars": half})
    assert mixed.answer.endswith(
        "also differ in number format (sgd fp32, lars fp16), which affects the times."
    )
    alone = replace(one, recipes=one.recipes[:1])
    assert ["optimizer", "sgd"] in alone.settings.rows
    assert "ratio" not in alone.answer


def test_without_a_run_of_the_first_recipe_no_other_takes_its_place(store):
    arms = {name: nbkit.ExperimentConfig(name=name) for name in ("sgd", "lars")}
    study = nbkit.Study.create("half", arms, kind="time_to_accuracy", repeats=1)
    run = trained_run(store, {1: 0.8})
    entry = {"arm": "lars", "repeat": 0, "run_id": run.run_id, "start": 0}
    content = json.loads(study.paths.study.read_text())
    study.paths.study.write_text(json.dumps({**content, "runs": [entry]}))

    with pytest.raises(NotEnoughDataError, match=r"baseline 'sgd' .* 0 finished runs"):
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

    whole = _whole(short, {"estimate_recipe": "netapp_lars", "estimate_for": ["H200"]})

    assert {one.origin for one in whole.estimates} == {"published rate, projected"}
    [why] = [note for note in whole.table.notes if "the short runs here: " in note]
    assert f"runs differ in device ({', '.join(names)})" in why


@pytest.mark.parametrize(("plan", "seed"), [({"seed_per_repeat": True}, 6), ({}, 4)])
def test_every_repeat_has_a_seed_of_its_own_where_the_plan_says_so(plan, seed):
    assert of_repeat({"seed": 4, "gpus": 2}, 2, plan) == {"seed": seed, "gpus": 2}


def test_a_recipe_that_is_not_finite_has_no_verdict_and_no_place_in_the_answer():
    result = measured()
    sgd, lars = result.recipes

    other = replace(result, recipes=(sgd, replace(lars, nonfinite=LOST)))
    first = replace(result, recipes=(replace(sgd, nonfinite=LOST), lars))

    assert "lars" not in other.answer
    assert other.answer.startswith("To 75 % top-1: sgd took")
    assert other.verdicts == {"lars": "no verdict, lars: loss not finite at step 3"}
    assert cells(other.table, 1)["median time"] is not None
    assert cells(other.table, 1)["time ratio"] is None
    assert first.answer.startswith("To 75 % top-1: lars took")
    assert "Times:" not in first.answer
    assert first.verdicts == {"lars": "no verdict, sgd: loss not finite at step 3"}


def test_verdicts_on_many_recipes_hold_together():
    found = measured()
    first = found.recipes[0]
    equal = [replace(first, recipe=f"sgd {number}") for number in range(3)]
    many = replace(found, recipes=(first, *equal))

    assert {one.comparisons for one in many.verdicts.values()} == {3}
    assert many.table.notes[-1].endswith("by Holm's correction.")
    assert not any("Holm" in note for note in found.table.notes)
