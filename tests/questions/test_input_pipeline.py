"""What the input pipeline report says follows from what was measured."""

from __future__ import annotations

import pytest

from nbkit.questions import input_pipeline
from nbkit.questions.input_pipeline.tables import cores_table, tuning_table
from nbkit.questions.input_pipeline.trials import (
    Grid,
    LoaderSetting,
    Trial,
    Tuning,
    tune,
)
from nbkit.store.record import read_json, write_json
from nbkit.studies.study import Study
from tests.questions.conftest import LOST, edit_metrics

OLD = "chexnet_old, 2 ranks"


def cells(table, first):
    """Return a row by column, of the first row whose first cell is this."""
    row = next(row for row in table.rows if row[0] == first)
    return dict(zip(table.columns, row, strict=True))


def test_a_lower_bound_never_shows_that_cores_are_enough():
    of_two = {"naive": (1000.0, 1.0), "slow": (1000.0, 3.0)}

    loading, training = (cores_table(of_two, 2, trains=t).rows for t in (False, True))

    assert [row[-1] for row in loading] == [None, "no"]
    assert [row[-1] for row in training] == ["yes", "no"]


def test_what_failed_and_whether_noise_was_measured_stand_below_the_trials():
    grid = Grid(["torch", "tfrecord"], [1, 2, 4], [2, 4, 8])
    first = LoaderSetting(1, 2, "torch")

    def measure(setting, why):
        if setting.loader == "tfrecord":
            return Trial(setting, 0.0, run_id="a-run", cause="no space left")
        return Trial(setting, 100.0)

    measured_twice = tuning_table(tune(grid, first, measure))
    once = tuning_table(tune(grid, first, measure, most_trials=3))

    row = cells(measured_twice, "3")
    assert (row["images/s"], row[""]) == ("–", "failed")
    assert measured_twice.notes[-1] == "Trial 3 failed: no space left"
    assert "the first setting differed by 0.0%" in measured_twice.notes[1]
    assert measured_twice.values["images_per_second"][2] is None
    assert "noise not measured; differences up to 2.0% are ignored" in once.notes[1]


def test_a_choice_by_disturbed_trials_is_said_to_be_not_reliable():
    others = "Others kept 1.0 of 2 CPUs busy, the run 1.0."
    grid, first = Grid(["torch"], [1, 2], [2]), LoaderSetting(1, 2, "torch")

    def noted(disturbed):
        trials = tune(
            grid,
            first,
            lambda s, _: Trial(s, 1.0, disturbed=others if s in disturbed else None),
            most_trials=2,
        )
        return tuning_table(Tuning.from_dict(trials.to_dict())).notes[0]

    assert noted([]).startswith("Chosen: ")
    assert noted([LoaderSetting(2, 2, "torch")]) == (
        "Unreliable: 1 of 2 trials were disturbed. Trial 2: Others kept 1.0 of 2 "
        "CPUs busy, the run 1.0. Tune again on an idle machine."
    )


@pytest.mark.parametrize(("engine", "cores"), [("local", 8), ("slurm", 64)])
def test_cores_of_a_queued_job_are_those_that_its_runs_recorded(golden, engine, cores):
    def of_login_node(plan):
        plan["cores"] = 8

    study = golden("input_pipeline/gpu", of_login_node)
    content = read_json(study.paths.study) or {}
    for arm in content["arms"].values():
        arm["engine"] = engine
    write_json(study.paths.study, content)

    table = input_pipeline.result(Study.open(study.study_id)).cores_table

    assert cells(table, "naive, 2 ranks")[f"{cores} suffice"] == (
        "yes" if cores == 64 else "no"
    )


@pytest.mark.nonfinite
def test_answer_input_that_is_not_finite(golden, lose):
    study = golden("input_pipeline/no_control")
    lose(study.runs_by_arm()["rule, 2 ranks"], ended=False)
    other = input_pipeline.result(study)
    lose(study.runs_by_arm()[OLD], ended=False)
    none = input_pipeline.result(study)

    assert other.answer.startswith("2 GPUs: chexnet_new ")
    assert cells(other.table, "rule, 2 ranks")["verdict"] == str(LOST)
    assert [row.ratio is None for row in other.sizes] == [False, False]
    assert none.answer.startswith("No comparison")
    assert [row.ratio is None for row in none.sizes] == [False, True]


def test_answer_ratio_within_control(golden):
    study = golden("input_pipeline/gpu")

    def slower(line):
        line["step_time_seconds"] *= 4

    edit_metrics(study.runs_by_arm()[f"{OLD} again"], slower)

    found = input_pipeline.result(study)
    assert (
        "chexnet_new / chexnet_old: no difference beyond the A/A control (75.0"
        in found.answer
    )
    assert {row.ratio.verdict for row in found.sizes} == {"withheld"}


@pytest.mark.parametrize(
    ("chosen", "end"),
    [
        (
            {"gpus": 2, "image_size": 32, "device": "cpu"},
            "ipynb -p gpus 2 -p repeats 5",
        ),
        (
            {"emulated_gpu": "A100", "batch_size_per_gpu": 256, "repeats": 5},
            "-p emulated_gpu A100 -p batch_size_per_gpu 256 -p repeats 5",
        ),
    ],
)
def test_next_step_sizes_of_a_cpu(golden, chosen, end):
    def choose(plan):
        plan["chosen"] = chosen

    made = input_pipeline.QUESTION.report(golden("input_pipeline/cpu", choose))

    assert made.next_step.endswith(end)
