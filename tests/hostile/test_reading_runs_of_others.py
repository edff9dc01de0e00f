"""Runs of others are read as one's own are, and say where they are from."""

from __future__ import annotations

import json
import os

import pytest

import nbkit
from nbkit.cli.main import main
from nbkit.config import ExperimentConfig
from nbkit.live.rows import run_numbers, state_words
from nbkit.live.run import LiveRun
from nbkit.server.run_table import StoredRunTable
from nbkit.store.record import write_json
from nbkit.widgets.picture import picture
from tests.hostile.written import imported, store_at
from tests.studies.written_study import write_runs


@pytest.fixture
def study(tmp_path, monkeypatch):
    """Return a study of two arms in another machine's store."""
    store_at(tmp_path / "elsewhere", monkeypatch)
    config = ExperimentConfig(device="cpu", gpus=1, steps=20, warmup_steps=2)
    arms = {"a": config, "b": config.replace(seed=1)}
    study = nbkit.Study.create("both", arms, repeats=2)
    write_runs(study, {"a": 100, "b": 200})
    return study


def _read(study_id: str) -> dict[str, str]:
    """Return what everything that only reads says."""
    runs = nbkit.runs()
    return {
        "compare": str(nbkit.compare(*runs[:2])),
        "audit": str(nbkit.audit(study_id)),
        "report": nbkit.report(study_id).report.answer,
    }


def test_what_only_reads_takes_imported_runs(study, tmp_path, monkeypatch, capsys):
    before = _read(study.study_id)
    imported(study, tmp_path, monkeypatch)

    assert _read(study.study_id) == before
    assert main(["runs"]) == 0
    assert capsys.readouterr().out.count("imported from") == 4
    again = nbkit.export(study.study_id, tmp_path / "again.zip")
    store_at(tmp_path / "third", monkeypatch)
    assert len(nbkit.import_bundle(again).run_ids) == 4


def test_what_only_reads_takes_another_users_runs(study, tmp_path):
    before = _read(study.study_id)
    for path in (tmp_path / "elsewhere").rglob("*"):
        os.chown(path, 12_345, -1)

    assert _read(study.study_id) == before
    assert main(["show", nbkit.runs()[0].run_id]) == 0
    assert nbkit.export(study.study_id, tmp_path / "again.zip").is_file()


def test_an_imported_run_is_marked_wherever_it_is_shown(study, tmp_path, monkeypatch):
    run_id = imported(study, tmp_path, monkeypatch)[0]
    run = nbkit.attach(run_id)
    write_json(run.paths.imported, {"host": "node7\x1b[2J\u202e"})
    run.paths.checkpoints.mkdir()
    (run.paths.checkpoints / "step_00000005").mkdir()
    (run.paths.checkpoints / "step_00000005" / "complete.json").write_text("{}")
    write_json(run.paths.record, {**run.record, "state": "stopped"})
    host = "imported from node7[2J"

    live = LiveRun(run)
    live.read()
    [row] = [
        one for one in StoredRunTable(None).poll([]).rows if one["run_id"] == run_id
    ]

    assert repr(run) == f"<Run {run_id} stopped, {host}>"
    assert "imported from" in repr(nbkit.Study.open(study.study_id))
    assert state_words(run_numbers(run) or {}) == f"stopped, {host}"
    assert host in picture(live)["text/plain"].splitlines()[0]
    # The view's button cannot say that the run is trusted.
    assert live.snapshot()["head"]["can_resume"] is False
    assert row["imported_from"] == "node7[2J"


@pytest.mark.parametrize("content", ["", "[", json.dumps({"host": None})])
def test_a_mark_that_says_nothing_is_a_mark(study, content):
    run = nbkit.runs()[0]
    run.paths.imported.write_text(content)

    assert run.imported_from == "another machine"
    assert "imported from another machine" in repr(run)
