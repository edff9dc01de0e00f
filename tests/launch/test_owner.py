"""What stops a job when who launched it is gone."""

from __future__ import annotations

import threading

from nbkit.config import ExperimentConfig
from nbkit.launch.owner import watch
from nbkit.launch.run import Run
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import write_json
from nbkit.store.stored_runs import create_run_folder
from tests.waiting import patient


def test_the_watch_of_a_job_ends_with_a_run_that_was_restarted(tmp_path, monkeypatch):
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    run = Run(create_run_folder(ExperimentConfig()).root)
    job = {"id": "7", "cluster": None}
    owner = ProcessIdentity.of().to_dict()
    write_json(run.paths.submission, {"attempt": 0, "job": job, "owner": owner})
    write_json(run.paths.record, {"attempt": 1, "state": "finished"})

    watching = threading.Thread(target=watch, args=(run,), daemon=True)
    watching.start()
    watching.join(patient(10))

    assert not watching.is_alive()
