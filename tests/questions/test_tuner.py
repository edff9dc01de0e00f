"""The tuner runs real trials; one that fails is a setting that does not do."""

from __future__ import annotations

import pytest

from nbkit.errors import StoreError
from nbkit.questions.input_pipeline.trials import Grid, LoaderSetting
from nbkit.questions.input_pipeline.tuner import tune_loading
from nbkit.store.record import RunState


@pytest.fixture
def loading(small):
    """Return what loads the built-in images, which are no TFRecord files."""
    return small(task="load", data="photos", gpus=1, steps=3, warmup_steps=1)


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
