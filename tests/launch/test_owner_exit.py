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
from tests.waiting import patient

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


@pytest.mark.parametrize(
    "record",
    [
        {"attempt": 1, "state": "finished"},
        {
            "attempt": 0,
            "state": "stopped",
            "cause": {"by": "time limit"},
            "launch": {"job": {"id": "7"}},
        },
    ],
)
def test_owner_watch_ends_with_its_run(record, tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    run = nbkit.Run(create_run_folder(ExperimentConfig()).root)
    job = {"id": "7", "cluster": None}
    owner = ProcessIdentity.of().to_dict()
    write_json(run.paths.submission, {"attempt": 0, "job": job, "owner": owner})
    write_json(run.paths.record, record)

    watching = threading.Thread(target=watch, args=(run, 0.0), daemon=True)
    watching.start()
    watching.join(patient(10))

    assert not watching.is_alive()
