"""A study that is stopped in the middle shows what it has measured so far."""

from __future__ import annotations

import json

import pytest

from nbkit.config import ExperimentConfig
from nbkit.errors import RunStoppedError
from nbkit.studies.study import Study
from tests.studies.written_study import write_runs

BASE = ExperimentConfig(
    device="cpu", model="resnet18", batch_size_per_gpu=8, tensorboard=False
)


def written(finished):
    """Return a study of two arms and two repeats, of which these runs have finished."""
    arms = {"plain": BASE, "smooth": BASE.replace(label_smoothing=0.1)}
    study = Study.create("stopped", arms, repeats=2)
    write_runs(study, {"plain": 100.0, "smooth": 110.0})
    content = json.loads(study.paths.study.read_text())
    runs = [one for one in content["runs"] if (one["arm"], one["repeat"]) in finished]
    study.paths.study.write_text(json.dumps({**content, "runs": runs}))
    return study


@pytest.fixture(params=[KeyboardInterrupt, RunStoppedError])
def stop(request, monkeypatch):
    """Let a user stop the next start; return with what."""

    def start_run(*_, **__):
        raise request.param

    monkeypatch.setattr("nbkit.studies.study.start_run", start_run)
    return request.param


def test_a_stopped_study_prints_the_headline_of_what_has_finished(store, capsys, stop):
    study = written([("plain", 0), ("plain", 1), ("smooth", 0)])

    with pytest.raises(stop):
        study.run()

    printed = capsys.readouterr().out
    assert "\nSo far, 3 of 4 planned runs have finished. CPU smoke test: " in printed
    rows = [line.split()[0] for line in printed.splitlines() if "not enough" in line]
    assert "smooth" in rows
    assert json.loads(study.paths.study.read_text())["executor"] is None


def test_a_headline_that_lacks_an_arm_begins_with_the_missing_runs(store, capsys, stop):
    with pytest.raises(stop):
        written([("plain", 0)]).run()

    printed = capsys.readouterr().out
    assert (
        "\nInconclusive: 1 of 4 planned runs has finished, "
        "but no run of arm smooth. Resume the study.\n" in printed
    )
    assert "images/s" not in printed


def test_what_stopped_a_study_is_raised_even_where_there_is_no_headline(
    store, capsys, stop, monkeypatch
):
    def broken(study):
        raise KeyError(study)

    monkeypatch.setattr("nbkit.questions.study_report.make", broken)
    with pytest.raises(stop):
        written([("plain", 0)]).run()
