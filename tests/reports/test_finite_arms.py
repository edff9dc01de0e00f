"""An arm that stopped being finite gets no verdict, and the report says so first."""

from __future__ import annotations

import html

import nbformat

import nbkit
from nbkit.questions.study_report import make
from nbkit.reports.headline import headline
from nbkit.store.nonfinite import NonFinite
from nbkit.studies.study import Study
from nbkit.widgets.comparison import comparison_html
from tests.studies.written_study import write_runs

BASE = nbkit.ExperimentConfig(model="resnet18", batch_size_per_gpu=8, steps=20)
LOST = NonFinite("loss", 3)
RATES = {"fp32": 100.0, "fp16": 300.0, "bf16": 200.0, "fp32 again": 100.0}


def written(rates=None, *, control=None, lost=None, ended=(), kind=None, repeats=5):
    """Return a study of three formats, of which fp16 is the fastest."""
    arms = {arm: BASE.replace(precision=arm) for arm in ("fp32", "fp16", "bf16")}
    study = Study.create("formats", arms, repeats=repeats, control=control, kind=kind)
    lost = {"fp16": LOST} if lost is None else lost
    write_runs(study, rates or RATES, lost, ended)
    return study


def cells(table, arm):
    [row] = [row for row in table.rows if row[0] == arm]
    return dict(zip(table.columns, row, strict=True))


def test_the_fastest_arm_is_one_that_stayed_finite(store):
    report = make(written(control="fp32"))

    first, *rest = report.answer.split(". ")
    assert first == "Diverged: fp16 (loss not finite at step 3)"
    assert rest[0].startswith("CPU smoke test: bf16: 2.00x")
    assert "fp16" not in " ".join(rest)
    assert report.tables[0].notes[0].startswith("fp16 diverged (")
    row = cells(report.tables[0], "fp16")
    assert row["images/s"] is not None
    assert (row["ratio"], row["verdict"]) == (None, str(LOST))
    assert report.result["diverged"] == {"fp16": LOST.to_dict()}
    assert any("diverged" in note for note in report.notes)


def test_without_a_finite_baseline_nothing_is_compared(store):
    report = make(written(lost={"fp32": LOST}))

    assert report.answer.startswith("Diverged: fp32 (loss not finite at step 3). ")
    assert "No comparison" in report.answer
    assert [row[3] for row in report.tables[0].rows] == [None, None, None]


def test_a_control_that_is_not_finite_leaves_no_verdict(store):
    report = make(written(control="fp32", lost={"fp32 again": LOST}))

    assert report.answer.startswith("Diverged: fp32 again (loss not finite")
    assert [row[3] for row in report.tables[0].rows] == [None] * 4


def test_an_arm_that_was_ended_is_a_result_and_is_not_run_again(store):
    study = written(ended=("fp16",))

    report = make(study)

    assert study.missing == []
    assert report.answer.startswith("Diverged: fp16 (loss not finite at step 3). ")
    assert not any("Unfinished" in note for note in report.notes)
    assert cells(report.tables[0], "fp16")["verdict"] == str(LOST)


def test_a_study_whose_only_runs_were_ended_has_a_report(store, tmp_path):
    arms = {"fp16": BASE.replace(precision="fp16")}
    study = Study.create("one", arms)
    write_runs(study, {"fp16": 100.0}, {"fp16": LOST}, ["fp16"])

    saved = nbkit.report(study)
    report = saved.report

    assert report.answer == "Diverged: fp16 (loss not finite at step 3)."
    assert report.tables[0].rows[0][:3] == ["fp16", "failed", str(LOST)]
    assert str(LOST) in repr(saved)
    # In a terminal, what a saved notebook carries.
    output = nbformat.v4.new_output("display_data", saved.bundle())
    cell = nbformat.v4.new_code_cell("nbkit.report(study)", outputs=[output])
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "done.ipynb")
    assert headline(tmp_path / "done.ipynb").startswith(f"{report.answer}\n\n")


def test_a_study_whose_only_runs_were_ended_has_an_audit(store):
    study = Study.create("one", {"fp16": BASE.replace(precision="fp16")})
    write_runs(study, {"fp16": 100.0}, {"fp16": LOST}, ["fp16"])

    audit = nbkit.audit(study)

    assert audit.counts == {"divergence": 1}
    assert str(LOST) in str(audit)


def test_runs_are_compared_without_a_verdict(store):
    runs = written().runs_by_arm()

    found = nbkit.compare(runs["fp16"], runs["fp32"])

    assert found.ratio is None
    assert found.sentence.startswith("Diverged: A (loss not finite at step 3). ")
    assert html.escape(found.sentence) in comparison_html(found)
