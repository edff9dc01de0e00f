"""The tuner runs real trials; one that fails is a setting that does not do."""

from __future__ import annotations

import pytest

import nbkit
from nbkit.errors import StoreError
from nbkit.questions.input_pipeline.trials import Grid, LoaderSetting
from nbkit.questions.input_pipeline.tuner import tune_loading
from nbkit.review.causes import Cause, Diagnosis
from nbkit.store.record import RunState


@pytest.fixture
def loading(small):
    """Return what loads the built-in images, which are no TFRecord files."""
    return small(task="load", data="photos", gpus=1, steps=3, warmup_steps=1)


def test_a_trial_that_fails_ends_neither_the_search_nor_the_notebook(
    loading, capsys, monkeypatch
):
    cause = Cause("other-processes", 0.5, "Others were there.", "wait.", None)
    told = Diagnosis("a trial", [cause])
    monkeypatch.setattr(
        "nbkit.questions.input_pipeline.tuner.diagnose", lambda run: told
    )
    grid = Grid(["tfrecord", "torch"], [1], [2])

    found = tune_loading(loading, grid, LoaderSetting(1, 2, "tfrecord"), most_trials=2)

    failed, done = found.trials
    assert "reads TFRecord files" in failed.cause
    assert (failed.images_per_second, done.cause) == (0.0, None)
    assert (failed.disturbed, done.disturbed) == (None, "Others were there.")
    assert found.chosen == LoaderSetting(1, 2, "torch")
    assert nbkit.attach(failed.run_id).state is RunState.FAILED
    names = [nbkit.attach(one.run_id).config.name for one in found.trials]
    assert names == ["tuner tfrecord", "tuner torch"]
    assert "tuner: 2 runs in" in capsys.readouterr().out


def test_a_trial_ends_with_a_search_that_cannot_show_its_progress(loading, monkeypatch):
    shown = []

    def poll(progress, run):
        shown.append(run)
        raise StoreError

    monkeypatch.setattr("nbkit.questions.input_pipeline.tuner.Progress.poll", poll)
    with pytest.raises(StoreError):
        tune_loading(loading, Grid(["torch"], [1], [2]), LoaderSetting(1, 2, "torch"))

    [run] = shown
    assert run.state is RunState.STOPPED
