"""What the precision report says of losses, layouts, bounds and published results."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import chain

import pytest

import nbkit
from nbkit.questions import precision
from nbkit.references.rows import published
from nbkit.reports.renderer import Note, Table
from nbkit.review.bounds import resnet50_bound
from nbkit.review.findings import codes
from nbkit.store.record import write_json
from tests.questions.conftest import edit_metrics
from tests.training import train_here

FP32 = "fp32, channels_last"
LAST, FIRST = "bf16, channels_last", "bf16, channels_first"


def cells(table, arm):
    """Return a row by column, of the first row whose first cell is this."""
    row = next(row for row in table.rows if row[0] == arm)
    return dict(zip(table.columns, row, strict=True))


@pytest.fixture
def trained(golden):
    """Return the result of a golden study in which arms had a loss of their own."""

    def open_study(case, loss, *arms):
        study = golden(f"precision/{case}")
        for arm in arms:
            edit_metrics(
                study.runs_by_arm()[arm],
                lambda line: line["step"] == 1 or line.update(loss=loss),
            )
        return precision.result(study)

    return open_study


def test_suspect_arm_is_not_the_headline(trained):
    result = trained("gpu", 6.9, LAST)

    assert cells(result.table, LAST)["loss"] == "6.900, loss suspect"
    assert any(note.startswith(f"{LAST}: loss suspect") for note in result.table.notes)
    assert cells(result.answer_table, LAST)["finding"] == "loss suspect"
    assert result.answer.startswith(f"{FIRST} trains")
    assert f"Excluded: {LAST} at 3.35x, loss suspect (final " in (result.answer)
    assert f"{LAST}: loss suspect" in result.report().untimed


def test_arm_of_which_a_repeat_was_ended_as_diverged_is_suspect(golden):
    study = golden("precision/gpu")
    run = study.runs_by_arm()[LAST][-1]
    lost = {"what": "loss", "step": 40, "after_step": None}
    write_json(run.paths.worker, {**run.worker, "nonfinite": lost})
    cause = {"kind": "nonfinite", "message": ""}
    write_json(run.paths.record, {**run.record, "state": "failed", "cause": cause})

    result = precision.result(study)

    assert cells(result.answer_table, LAST)["finding"] == "loss suspect"


def test_answer_that_only_a_control_could_judge_is_not_called_wrong(trained):
    whole = trained("no_control", 7.0)
    loss = float(cells(whole.table, FP32)["loss"]) + 1
    result = trained("no_control", loss, LAST)

    assert cells(result.table, LAST)["loss"].endswith(", not judged")
    assert cells(result.answer_table, LAST)["finding"] == "not judged"
    [note] = [one for one in result.table.notes if one.startswith(f"{LAST}: ")]
    assert "Measure with control=True" in note
    assert "loss parity inconclusive without a control (" in result.answer
    said = " ".join(result.layout.to_text().split())
    assert f"{LAST} is omitted, because its loss is inconclusive" in said


@pytest.mark.nonfinite
@pytest.mark.parametrize("wrong", [LAST, FIRST, FP32])
def test_layout_of_loss_that_is_not_finite(trained, wrong):
    result = trained("gpu", None, wrong)

    assert cells(result.table, wrong)["loss"] == "not finite, loss suspect"
    if wrong != FP32:
        assert cells(result.answer_table, wrong)["vs. baseline"] is None
    said = " ".join(result.layout.to_text().split())
    assert wrong in said
    assert "omitted" in said
    effects = result.report().result["layouts"]
    assert [one["precision"] for one in effects] == ([] if wrong == FP32 else ["fp32"])


def test_losses_are_compared_over_the_steps_that_all_runs_have(golden):
    study = golden("precision/gpu")
    for run in chain(*study.runs_by_arm().values()):
        config = json.loads(run.paths.config.read_bytes())
        run.paths.config.write_text(json.dumps(config | {"steps": None}))
    edit_metrics(
        study.runs_by_arm()[LAST],
        lambda line: line["step"] <= 30 or line.update(loss=0.0),
    )
    late = study.runs_by_arm()[FIRST][0].paths.metrics
    lines = late.read_text().splitlines(keepends=True)
    late.write_text("".join(line for line in lines if json.loads(line)["step"] <= 30))

    result = precision.result(study)

    assert cells(result.answer_table, LAST)["finding"] != "loss suspect"
    assert result.answer_table.caption == "Loss parity after 30 steps"


def test_kernels_search_and_bounds_follow_the_recorded_conditions(trained):
    result = trained("gpu", 7.0)

    def under(**changed):
        conditions = {**result.evidence.conditions, **changed}
        evidence = replace(result.evidence, conditions=conditions)
        return replace(result, evidence=evidence)

    for searched in (False, True):
        method = under(cudnn_benchmark=searched).report().method
        assert any("from 5.6x to 5.2x" in line for line in method) is not searched
    bounds = under(device_name="Imaginary 9000").bounds
    assert isinstance(bounds, Note)
    assert "peak rates of Imaginary 9000 are unknown" in bounds.sentences[0]
    noted = replace(result, batch_norms={FP32: "cudnn", LAST: "native"})
    assert "cuDNN in fp32, channels_last" in noted.table.to_text().replace("\n", " ")
    assert "Batch-norm kernels" not in result.table.to_text()


def test_how_close_to_the_bound_others_came_is_what_they_published(trained):
    shares = {}
    for row in published():
        if row.model != "resnet50" or row.phase != "train" or row.publisher == "ffcv":
            continue
        if row.images_per_second and row.gpu_name and row.precision == "fp16":
            bound = resnet50_bound(row.gpu_name, row.precision, "fused")
            if bound is not None:
                rate = row.images_per_second / row.world_size
                share = rate / bound.images_per_second
                shares[row.gpu_name] = max(share, shares.get(row.gpu_name, 0.0))

    h200, l40s = shares["H200-SXM-141GB"], shares["L40S"]
    said = f"{h200:.0%} (H200) to {l40s:.0%} (L40S)"
    assert l40s == max(shares.values())
    assert isinstance(bounds := trained("gpu", 7.0).bounds, Table)
    assert said in bounds.notes[1]
    assert said in codes()["implausible-throughput"].why.replace(" %", "%")


@pytest.mark.parametrize("change", [{"gpus": 4}, {"image_size": 128}])
def test_published_of_several_gpus_or_another_size(trained, change):
    result = trained("one_repeat", 7.0)
    configs = {arm: one.replace(**change) for arm, one in result.configs.items()}

    assert result.published
    assert replace(result, configs=configs).published == {}


@pytest.mark.nonfinite
def test_gradients_that_overflow_in_a_real_run_are_skipped_counted_and_recorded(small):
    fields = {"model": "overflows_once", "gpus": 1}

    half = nbkit.launch(small(precision="fp16", **fields)).wait()
    single = train_here(small(precision="fp32", **fields))

    skipped = [line["step"] for line in half.metrics() if line["update_skipped"]]
    assert skipped == [3]
    assert (half.summary.updates_skipped, half.summary.loss_scale) == (1, 32768.0)
    assert half.summary.nonfinite is None
    assert half.summary.weights_finite is True
    assert half.worker["weights_finite"] is True
    assert str(single.summary.nonfinite) == "loss not finite between step 3 and step 4"
    assert single.summary.final_loss is None
    assert single.summary.weights_finite is False
    assert "update_skipped" not in single.metrics()[0]
