"""A question whose trainings were ended where they stopped being finite is answered."""

from __future__ import annotations

import pytest

import nbkit
from nbkit.cli.main import main
from nbkit.questions import precision, time_to_accuracy
from nbkit.questions.precision import planning as precision_plan
from nbkit.questions.study_report import make
from nbkit.questions.time_to_accuracy import planning as time_to_accuracy_plan
from nbkit.server.run_table import StoredRunTable
from nbkit.store.nonfinite import NonFinite
from nbkit.studies.study import Study
from tests.questions import (
    test_precision_plan,
    test_time_to_accuracy_plan,
)
from tests.studies.written_study import write_runs

LOST = NonFinite("loss", 3)
FORMATS = ("fp32, channels_last", "bf16, channels_last", "bf16, channels_first")


def evaluated(rate):
    """Return the line of an evaluation that has reached every target."""
    counts = {"images": 10, "duration_seconds": 1.0, "t": 1_577_837_000.0}
    line = {"kind": "evaluation", "attempt": 0, "step": 20, "epoch": 1, "loss": 1.0}
    return {**line, **counts, "top1_accuracy": rate}


def written(kind, planned, rates, lost, ended, **more):
    control = getattr(planned, "control", None)
    fields = {"unrepeated": getattr(planned, "unrepeated", None), "control": control}
    study = Study.create(kind, planned.arms, kind=kind, plan=planned.facts, **fields)
    write_runs(study, rates, lost, ended, **more)
    return study


def cells_of(module, study, names):
    """Return what the cells of a notebook show after its runs."""
    found = module.result(study)
    return [getattr(found, name) for name in names]


@pytest.mark.parametrize("arms", [["sgd"], ["sgd", "lars"]])
def test_time_to_accuracy_arrives_at_its_report_without_a_finite_baseline(store, arms):
    planned = time_to_accuracy_plan.plan(
        test_time_to_accuracy_plan.parameters(estimate_steps=0, repeats=1)
    )
    study = written(
        "time_to_accuracy",
        planned,
        {"sgd": 100.0, "lars": 200.0},
        dict.fromkeys(arms, LOST),
        arms,
        lines=[evaluated(0.999)],
    )
    names = ("table", "seeds", "settings", "projected", "published")

    for one in cells_of(time_to_accuracy, study, names):
        assert f"every run of sgd diverged ({LOST})" in one.to_text()
    assert len(time_to_accuracy.logs(study).to_text().splitlines()) >= 1
    assert nbkit.report(study).report.answer.startswith("Diverged: sgd")


@pytest.mark.parametrize("arms", [FORMATS[:1], FORMATS])
def test_precision_arrives_at_its_report_without_a_finite_baseline(store, arms):
    planned = precision_plan.plan(test_precision_plan.parameters(repeats=1))
    rates = dict(zip(FORMATS, (100.0, 200.0, 150.0), strict=True))
    again = "fp32, channels_last again"
    rates[again] = 100.0
    lost = [*arms, again]
    rates |= dict.fromkeys(planned.unrepeated, 100.0)
    study = written("precision", planned, rates, dict.fromkeys(lost, LOST), lost)
    names = ("table", "answer_table", "layout", "published_layouts", "bounds")

    for one in cells_of(precision, study, names):
        assert f"every run of fp32, channels_last diverged ({LOST})" in one.to_text()
    assert nbkit.report(study).report.answer.startswith("Diverged: fp32")


@pytest.mark.nonfinite
def test_a_training_at_a_far_too_high_learning_rate_is_told_everywhere(
    small, store, capsys
):
    usual = small(gpus=1, steps=6, warmup_steps=1)
    wild = usual.replace(learning_rate=1e38)
    arms = {
        "ended": wild.replace(stop_on_nonfinite=True),
        "usual": usual,
        "wild": wild,
    }

    study = Study.create("rates", arms).run(progress=False)
    runs = study.runs_by_arm(diverged=True)
    [ended], [run] = runs["ended"], runs["wild"]
    said = str(run.nonfinite)
    main(["show", run.run_id])
    main(["runs"])
    printed = capsys.readouterr().out
    rows = {row["run_id"]: row for row in StoredRunTable(None).poll([]).rows}
    report = make(study)

    assert said.startswith("loss not finite between step ")
    assert f"finished; {said}" in printed
    assert f"finished, {said}" in printed
    assert f"failed, {said}" in printed
    assert repr(run) == f"<Run {run.run_id} finished, {said}>"
    assert repr(ended) == f"<Run {ended.run_id} failed, {said}>"
    assert [rows[one.run_id]["nonfinite"] for one in (run, ended)] == [said, said]
    found = [one.evidence for one in nbkit.audit(run) if one.code == "loss"]
    assert found == [said]
    told = {one.subject for one in nbkit.audit(study) if one.code == "loss"}
    assert len(told) == 2
    assert repr(study).endswith("2 of 3 runs finished, 1 not finite>")
    assert report.answer.startswith(f"Diverged: ended ({said}), wild ({said}). ")
    assert "usual trains" in report.answer
    assert [row[5] for row in report.tables[0].rows] == ["baseline", said]
    # The arm that was ended is a result, too.
    assert study.missing == []
    assert [len(many) for many in study.runs_by_arm().values()] == [0, 1, 1]
