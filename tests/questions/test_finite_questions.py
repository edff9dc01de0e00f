"""A question whose trainings were ended where they stopped being finite is answered."""

from __future__ import annotations

import importlib

import pytest

import nbkit
from nbkit.cli.main import main
from nbkit.questions.study_report import make
from nbkit.server.run_table import StoredRunTable
from nbkit.studies.study import Study
from tests.questions.conftest import LOST

BASE = "fp32, channels_last"
ANSWERS = ("table", "answer_table", "layout", "published_layouts", "bounds")


@pytest.mark.parametrize(
    ("question", "lost", "names"),
    [
        (
            "time_to_accuracy",
            ["sgd"],
            ("table", "seeds", "settings", "projected", "published"),
        ),
        ("precision", [BASE, f"{BASE} again"], ANSWERS),
    ],
)
def test_report_baseline_that_is_not_finite(golden, lose, question, lost, names):
    study = golden(f"{question}/gpu")
    for arm in lost:
        lose(study.runs_by_arm()[arm])
    module = importlib.import_module(f"nbkit.questions.{question}")

    found = module.result(study)

    for name in names:
        said = getattr(found, name).to_text()
        assert f"every run of {lost[0]} diverged ({LOST})" in said
    assert nbkit.report(study).report.answer.startswith(f"Diverged: {lost[0]}")


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
