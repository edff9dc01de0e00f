"""Rows of studies: how far they are, by their file and by their runs."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.server.run_table import StoredRunTable
from nbkit.store.paths import RunPaths, runs_folder
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import write_json
from nbkit.studies.study import Study
from tests.launch.conftest import store
from tests.studies.written_study import write_runs

__all__ = ["store"]

END = "2020-01-01T01:00:00+00:00"


@pytest.fixture
def study(store) -> Study:
    config = ExperimentConfig(device="cpu", gpus=1, steps=20, warmup_steps=2)
    arms = {"a": config, "b": config.replace(batch_size_per_gpu=8)}
    return Study.create("two arms", arms, repeats=2)


def change(study: Study, **changes: Any) -> None:
    content = json.loads(study.paths.study.read_text())
    write_json(study.paths.study, {**content, **changes})


def test_study_row_follows_plan_runs_and_report(study):
    table = StoredRunTable(study.paths.root.parents[1])

    def row() -> dict[str, Any]:
        (found,) = table.poll([]).studies
        return found

    assert (row()["state"], row()["num_starts"]) == ("planned", 4)
    write_runs(study, {"a": 10, "b": 20})
    entries = json.loads(study.paths.study.read_text())["runs"]
    assert {run["study_id"] for run in table.poll([]).rows} == {study.study_id}

    # While a process executes it.
    me = ProcessIdentity.of().to_dict()
    write_json(study.paths.progress, {"expected_end": END, "answer": "So far: b\x1b"})
    change(study, runs=entries[:3], executor=me)
    assert (row()["state"], row()["num_finished"]) == ("running", 3)
    assert (row()["expected_end"], row()["answer"]) == (END, r"So far: b\x1b")
    child = subprocess.Popen(["sleep", "60"])
    dead = ProcessIdentity.of(child.pid).to_dict()
    child.kill()
    child.wait()
    # Runs side by side go on without it.
    records = [RunPaths(runs_folder() / entry["run_id"]).record for entry in entries]
    ended = [json.loads(record.read_text()) for record in records]
    for record, values in zip(records[:2], ended, strict=False):
        write_json(record, {**values, "state": "running"})
    change(study, executor=dead, runs=entries[:3])
    assert (row()["state"], row()["expected_end"]) == ("incomplete", None)
    assert row()["num_finished"] == 1
    resume = f"nbkit.Study.open('{study.study_id}').resume()"
    assert row()["command"] == resume
    plan = json.loads(study.paths.study.read_text())["plan"]
    change(study, plan={**plan, "command": "nbkit try a b"})
    assert row()["command"] == "nbkit try a b"
    study.paths.imported.write_text('{"host": "other"}')
    change(study, plan=plan)
    assert row()["command"] is None
    study.paths.imported.unlink()
    for count, (record, values) in enumerate(zip(records[:2], ended, strict=False)):
        write_json(record, values)
        assert row()["num_finished"] == 2 + count

    change(study, executor=None, runs=entries)
    saved = nbkit.report(study)
    assert (row()["state"], row()["num_finished"]) == ("finished", 4)
    assert row()["answer"] == saved.report.answer
    # Until a run is newer.
    write_json(study.paths.progress, {"expected_end": None, "answer": "now"})
    assert row()["answer"] == saved.report.answer
    later = saved.result.stat().st_mtime_ns + 1_000_000_000
    os.utime(records[0], ns=(later, later))
    write_json(study.paths.progress, {"expected_end": None, "answer": "now"})
    assert row()["answer"] == "now"

    ended = json.loads(records[0].read_text())
    write_json(records[0], {**ended, "state": "failed", "cause": {"kind": "nonfinite"}})
    change(study, minutes=1)
    assert (row()["state"], row()["num_finished"]) == ("finished", 4)
    write_json(records[0], {**ended, "state": "failed", "cause": {"kind": "rank"}})
    change(study, minutes=2)
    assert (row()["state"], row()["num_finished"]) == ("incomplete", 3)
    # Its arm was discarded: the study needs no run of it.
    change(study, is_complete=True)
    assert row()["state"] == "finished"
    write_json(records[0], ended)
    change(study, is_complete=False)
    assert (row()["state"], row()["num_finished"]) == ("incomplete", 4)

    change(study, is_complete=True)
    hidden = runs_folder().with_name("hidden")
    hidden.mkdir()
    folder = records[0].parent
    moved = folder.rename(hidden / folder.name)
    assert (row()["state"], row()["num_finished"]) == ("incomplete", 3)
    assert (row()["damage"], row()["command"]) == (None, resume)
    assert row()["answer"] == "now"
    moved.rename(folder)
    assert row()["state"] == "finished"

    # Of a process that is not visible from here, runs that go on tell.
    change(study, executor={**me, "host": "far", "boot_id": "far"})
    assert row()["state"] == "finished"
    write_json(records[0], {**ended, "state": "running", "supervisor": me})
    change(study, minutes=3)
    assert row()["state"] == "running"
    write_json(records[0], ended)

    study.paths.study.write_text("{")
    assert "study.json" in row()["damage"]
