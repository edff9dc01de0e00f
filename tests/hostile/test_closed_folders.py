"""Folders of code and of data below one that another user has closed."""

from __future__ import annotations

import pytest

from nbkit.errors import ConfigError, RunError
from nbkit.launch.code.trust import permit_run
from nbkit.launch.submit import existing_data
from nbkit.reproduction.repetition import ReproductionPlan
from nbkit.store.record import write_json
from tests.hostile.strangers import as_stranger, needs_root
from tests.hostile.written import write_run


@pytest.fixture
def closed(tmp_path):
    """Return a folder below one that its owner alone may enter."""
    folder = tmp_path / "home" / "work"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o700)
    return folder


@pytest.fixture
def launched_in_closed(closed):
    """Return a maker of runs that were launched there."""

    def make(task, state="finished"):
        run = write_run(state, task=task)
        write_json(run.paths.submission, {**run.submission, "cwd": str(closed)})
        return run

    return make


@needs_root
def test_a_run_from_a_closed_folder_is_repeated_in_the_current_one(
    tmp_path, store, launched_in_closed, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    run = launched_in_closed("train")
    permit = permit_run(run.paths, trust=True)

    with as_stranger(store):
        assert ReproductionPlan.of(run, permit).cwd == tmp_path


def test_a_function_is_not_resumed_in_a_folder_that_is_closed(
    store, launched_in_closed, monkeypatch
):
    run = launched_in_closed("function", "stopped")
    monkeypatch.setattr("nbkit.launch.resume.can_enter", lambda _: False)

    with pytest.raises(RunError, match="is not accessible"):
        run.resume()


@needs_root
def test_data_in_a_closed_folder_are_refused_and_not_taken_for_missing(store, closed):
    store.mkdir()

    table = store / "labels.csv"
    table.write_text("")
    table.chmod(0o600)

    for data in (closed, closed.parent, table):
        with as_stranger(store), pytest.raises(ConfigError, match="cannot be read"):
            existing_data(str(data))
