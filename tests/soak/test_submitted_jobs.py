"""A job that a rank has submitted completes, however the run ends."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

import nbkit
from nbkit.store.record import RunState
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import empty_after_each_test, plugins, small, store, two_nodes
from tests.slurm.runs import PATIENCE_SECONDS, TwoNodes, job_of
from tests.waiting import hang_limit, wait_until

__all__ = ["empty_after_each_test", "plugins", "small", "store", "two_nodes"]

ENDS = {
    "return": RunState.FINISHED,
    "raise": RunState.FAILED,
    "hang": RunState.FAILED,
    "stop": RunState.STOPPED,
    "scancel": RunState.STOPPED,
    "requeue": RunState.STOPPED,
}


def submit_a_job(how: str, folder: str) -> None:
    """Submit a job that needs a word from outside to complete, then end."""
    if nbkit.context().rank == 0 and nbkit.context().attempt == 0:
        wait = f"while [ ! -e {folder}/go ]; do sleep 0.1; done; touch {folder}/done"
        argv = ["sbatch", "--parsable", "--output=/dev/null", "--overcommit"]
        job = subprocess.check_output([*argv, "--wrap", wait], text=True).strip()
        Path(folder, "job").write_text(job)
        show = ["squeue", "--noheader", "--format=%T", f"--jobs={job}"]
        while "RUNNING" not in subprocess.check_output(show, text=True):
            pass
        Path(folder, "runs").touch()
    nbkit.log({"submitted": 1})
    if how == "raise":
        raise ValueError(how)
    if how == "hang":
        threading.Event().wait()
    while how != "return":
        nbkit.log({"alive": 1})


@pytest.mark.parametrize("how", ENDS)
def test_submitted_job_completes(
    how: str, two_nodes: TwoNodes, slurm: SlurmCluster, tmp_path: Path
):
    fields = {"hang_timeout_seconds": hang_limit(10)} if how == "hang" else {}
    run = nbkit.launch(
        submit_a_job,
        args=(how, str(tmp_path)),
        engine="slurm",
        nnodes=2,
        device="cpu",
        slurm={"slurm_requeue": how == "requeue"},
        **fields,
    )
    runs = tmp_path / "runs"
    wait_until(runs.exists, "the job of a rank runs", PATIENCE_SECONDS)
    if how == "stop":
        run.stop()
    elif how == "scancel":
        slurm.command("scancel", job_of(run))
    elif how == "requeue":
        slurm.command("scontrol", "requeue", job_of(run))
        # On a free node it starts again before it is seen as queued.
        wait_until(
            lambda: run.record.get("attempts"), "an attempt's end", PATIENCE_SECONDS
        )
        run.stop()
    run.wait(PATIENCE_SECONDS, raise_on_failure=False)
    job = (tmp_path / "job").read_text()
    assert run.state is ENDS[how], run.cause
    assert slurm.job(job)["JobState"] == "RUNNING"
    run.stop()
    nbkit.sweep(run.run_id)
    assert slurm.job(job)["JobState"] == "RUNNING"

    (tmp_path / "go").touch()

    slurm.wait_for_job(job, "COMPLETED")
    assert (tmp_path / "done").exists()
    two_nodes.end(run)
