"""A study is reported from the store alone, on any machine."""

from __future__ import annotations

import csv
import math
import os
import shutil
import sys
from pathlib import Path

import pytest

import nbkit
from nbkit import registry
from nbkit.errors import ConfigError, NotEnoughDataError, StoreError
from nbkit.launch.run import Run
from nbkit.questions.study_report import report
from nbkit.store.stored_runs import create_run_folder
from tests.launch.conftest import PLUGINS


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """Measure two arms and a control in a store of their own; return all of it."""
    folder = tmp_path_factory.mktemp("there")
    fields = {"model": "tiny", "device": "cpu", "gpus": 1, "image_size": 32}
    fields |= {"steps": 4, "warmup_steps": 1, "tensorboard": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NBKIT_HOME", str(folder / "store"))
        patch.setenv("PYTHONPATH", str(PLUGINS), prepend=os.pathsep)
        patch.syspath_prepend(str(PLUGINS))
        registry.forget()
        arms = {
            f"batch {size}": nbkit.ExperimentConfig(**fields, batch_size_per_gpu=size)
            for size in (2, 4)
        }
        study = nbkit.Study.create("batches", arms, control="batch 2")
        # Other tests take its CPUs now and then.
        limit = "nbkit.review.cpu_checks.QUEUE_SECONDS"
        patch.setattr(limit, math.inf)
        study.run(progress=False)
        saved = nbkit.report(study)
        nbkit.export(study, folder / "study.zip")
    registry.forget()
    return folder / "study.zip", saved


@pytest.fixture
def measured(bundle, monkeypatch):
    """Return the study, imported where its plug-in is not installed."""
    path, _ = bundle
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(PLUGINS)])
    registry.forget()
    return nbkit.Study.open(nbkit.import_bundle(path).study_id)


def test_a_study_of_any_arms_is_reported_where_it_was_imported(
    bundle, measured, tmp_path
):
    _, here = bundle

    there = nbkit.report(measured.study_id, folder=tmp_path / "paper" / "new")

    assert there.report.answer == here.report.answer
    assert there.report.tables == here.report.tables
    assert there.page.parent == tmp_path / "paper" / "new"
    assert here.page.parent.name == measured.study_id
    assert any("Imported on" in one for one in there.report.method)
    headline, certainty, differences, starts, *checks = there.report.tables
    assert checks[-1].caption == "Findings"
    assert [row[0] for row in headline.rows] == ["batch 2", "batch 4", "batch 2 again"]
    assert headline.rows[1][5] == "not enough runs"
    assert [row[0] for row in certainty.rows] == ["batch 4", "batch 2 again"]
    assert ["batch 4", "configuration", "batch_size_per_gpu", "2", "4"] in (
        differences.rows
    )
    # Somebody may have edited the code between two runs.
    assert {row[1] for row in differences.rows if row[0] == "batch 2 again"} <= {"code"}
    ids = {run.run_id for runs in measured.runs_by_arm().values() for run in runs}
    assert {row[-1] for row in starts.rows} == ids
    assert len(ids) == 3
    assert any("few measured steps (3 runs)" in one for one in there.report.notes)
    codes = {finding["code"] for finding in there.report.result["audit"]}
    assert "few-steps" in codes
    conditions = there.report.result["conditions"]
    assert conditions["model"] == "tiny"
    assert conditions["batch_size_per_gpu"] is None
    # One short run each: chance may make of the control what no answer survives.
    answers = (
        "CPU smoke test: batch 4: ",
        "CPU smoke test: no arm is faster",
    )
    doubted = ("Inconclusive: ",)
    has_caveats = bool(there.report.result.get("caveats"))
    assert there.report.answer.startswith(doubted if has_caveats else answers)
    with there.tables[0].open(newline="") as file:
        assert next(csv.DictReader(file))["images_per_second"]
    assert [path.read_bytes()[:4] for path in there.figures] == [b"\x89PNG"] * 2


def test_a_study_that_was_reported_can_be_imported_again(bundle, measured):
    path, _ = bundle
    nbkit.report(measured)

    again = nbkit.import_bundle(path)

    assert again.already_there == again.run_ids


def test_an_unfinished_study_is_reported_as_far_as_it_came(measured):
    [twin] = measured.runs_by_arm()["batch 2 again"]
    shutil.rmtree(twin.paths.root)

    unfinished = report(measured).report

    assert unfinished.answer.partition("; ")[0].startswith(
        "Inconclusive: 2 of 3 planned runs have finished, but no run of arm batch 2"
    )
    assert "resume()" in unfinished.next_step
    assert unfinished.result["noise_floor"] is None

    [first] = measured.runs_by_arm()["batch 2"]
    shutil.rmtree(first.paths.root)
    with pytest.raises(NotEnoughDataError, match="Baseline 'batch 2'"):
        report(measured)
    [other] = measured.runs_by_arm()["batch 4"]
    shutil.rmtree(other.paths.root)
    with pytest.raises(NotEnoughDataError, match="No arm of study"):
        nbkit.audit(measured)


def test_a_kind_is_never_a_module_of_somebody_elses_choice(small):
    study = nbkit.Study.create("demo", {"a": small()}, kind="report_study")

    with pytest.raises(NotEnoughDataError, match="No arm of study"):
        report(study)


def test_a_study_without_runs_and_one_that_is_not_there_say_so(small, store: Path):
    study = nbkit.Study.create("demo", {"a": small()}, kind="scaling")

    with pytest.raises(NotEnoughDataError, match="Call run"):
        report(study)
    with pytest.raises(StoreError, match=str(store)):
        report("20260101-000000-none-abcd")


def test_what_is_no_study_is_refused_with_what_a_report_takes(small, store: Path):
    run = Run(create_run_folder(small()).root)

    for a_run in (run, run.run_id):
        with pytest.raises(ConfigError) as caught:
            report(a_run)
        assert str(caught.value) == (
            f"study={run.run_id!r} is a run, not a study. Pass a study or its id, "
            f"or show the run with `nbkit show {run.run_id}`."
        )
    for other in (None, 3, store / "studies" / "x"):
        with pytest.raises(ConfigError, match=r"has type \w+. Pass a study \("):
            report(other)
    with pytest.raises(StoreError, match="'no/study': no study has this id"):
        report("no/study")
