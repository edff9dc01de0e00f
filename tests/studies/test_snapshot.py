"""A study as it was at one moment."""

from __future__ import annotations

import pytest

import nbkit
from nbkit.store.record import read_json, write_json
from nbkit.studies.snapshot import StudySnapshot
from tests.studies.written_study import write_runs


def test_study_snapshot_keeps_what_was_read(small):
    study = nbkit.Study.create("seen", {"a": small(), "b": small(steps=3)}, repeats=2)
    write_runs(study, {"a": 100.0, "b": 90.0})
    snapshot = StudySnapshot(study.paths.root)
    [run, _] = snapshot.runs_by_arm()["a"]
    before = run.summary.images_per_second
    content = read_json(study.paths.study)
    assert content is not None

    write_json(study.paths.study, {**content, "runs": []})
    run.paths.record.unlink()
    run.paths.metrics.write_text("")

    assert study.runs_by_arm()["a"] == []
    assert snapshot.runs_by_arm()["a"][0] is run
    assert run.state is nbkit.RunState.FINISHED
    assert run.summary.images_per_second == before
    assert len(run.metrics()) == 20
    assert run.metrics("evaluation") == []


@pytest.mark.parametrize("repeat", [-1, 2])
def test_study_runs_by_arm_leave_out_a_repeat_that_was_not_planned(small, repeat):
    study = nbkit.Study.create("edited", {"a": small()}, repeats=2)
    write_runs(study, {"a": 100.0})
    content = read_json(study.paths.study)
    assert content is not None
    first, second = content["runs"]

    runs = [{**first, "repeat": repeat}, second]
    write_json(study.paths.study, {**content, "runs": runs})

    assert [run.run_id for run in study.runs_by_arm()["a"]] == [second["run_id"]]
