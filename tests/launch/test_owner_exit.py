"""What becomes of a run when its notebook ends, unless the launch says.

That of a page is in test_survival.py.
"""

from __future__ import annotations

import threading

import nbformat
import pytest
from nbclient import NotebookClient

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.launch.owner import watch
from nbkit.launch.submit import chosen_owner_exit
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import write_json
from nbkit.store.stored_runs import create_run_folder
from tests.slurm_programs import SlurmPrograms
from tests.waiting import patient, wait_until

ASK = "from nbkit.launch.submit import chosen_owner_exit\nchosen_owner_exit(None)"


def test_owner_exit_in_executed_notebook():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(ASK)])

    NotebookClient(notebook, timeout=120).execute()

    assert notebook.cells[0].outputs[0].data["text/plain"] == "'stop'"


def test_owner_exit_in_script():
    assert chosen_owner_exit(None) == "keep"


@pytest.mark.parametrize("choice", ["keep", "stop"])
def test_owner_exit_as_chosen(choice):
    assert chosen_owner_exit(choice) == choice
    with pytest.raises(ConfigError, match="Use 'keep' or 'stop'"):
        chosen_owner_exit(choice.upper())


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """Return a run in a job, and what begins to watch it."""
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path / "store"))
    run = nbkit.Run(create_run_folder(ExperimentConfig()).root)
    owner = ProcessIdentity.of().to_dict()
    submission = {"attempt": 0, "job": {"id": "7", "cluster": None}, "owner": owner}
    write_json(run.paths.submission, submission | {"time": "2020-01-01T00:00:00.000Z"})

    def begin(**record):
        write_json(run.paths.record, record)
        thread = threading.Thread(target=watch, args=(run, 0.0), daemon=True)
        thread.start()
        return thread

    return begin


def test_owner_watch_of_a_restarted_run(watched):
    watching = watched(attempt=1, state="finished")

    watching.join(patient(10))

    assert not watching.is_alive()


def test_owner_watch_of_a_job_that_slurm_may_start_again(
    watched, tmp_path, monkeypatch
):
    programs = SlurmPrograms(tmp_path, monkeypatch)
    programs.tell("squeue", "7|PENDING|N/A||Resources")
    end = {"cause": {"by": "time limit"}, "launch": {"job": {"id": "7"}}}

    watching = watched(attempt=0, state="stopped", **end)
    wait_until(lambda: len(programs.calls("squeue")) > 1, "two questions", 60)
    assert watching.is_alive()
    programs.tell("squeue", "7|TIMEOUT|N/A||None")
    watching.join(patient(60))

    assert not watching.is_alive()
