"""Runs on the two nodes: how they are asked for, followed, held up and looked over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.launch.supervision.leftovers import processes_of_run
from nbkit.store.record import RunState
from tests.slurm.cluster import SlurmCluster
from tests.waiting import patient, wait_until

__all__ = [
    "PATIENCE_SECONDS",
    "STEPS",
    "TwoNodes",
    "hold_both_nodes",
    "hurry",
    "job_of",
    "losses",
]

STEPS = 45
"""As many seconds as a run that lingers goes on: longer than Slurm takes to look."""
PATIENCE_SECONDS = 180
_ENDED = ("CANCELLED", "COMPLETED", "FAILED", "NODE_FAIL", "TIMEOUT")


class TwoNodes:
    """Launches runs of one rank on each node, and follows them."""

    def __init__(
        self, slurm: SlurmCluster, make: Callable[..., ExperimentConfig]
    ) -> None:
        self._slurm = slurm
        self._make = make

    def config(self, **fields: Any) -> ExperimentConfig:
        """Return an experiment that gives the same losses each time."""
        usual = {
            "engine": "slurm",
            "nnodes": 2,
            "model": "lingers",
            "deterministic": True,
            "steps": STEPS,
            "images_per_epoch": 64,
        }
        return self._make(**{**usual, **fields})

    def launch(
        self,
        *,
        lingering: bool = False,
        tags: dict[str, str] | None = None,
        **fields: Any,
    ) -> nbkit.Run:
        """Launch such an experiment; it may take a second for each step."""
        run = nbkit.launch(self.config(**fields), tags=tags)
        if lingering:
            _linger(run)
        return run

    def reach(self, run: nbkit.Run, steps: int = 3) -> nbkit.Run:
        """Wait until a run has done some steps."""
        what = f"step {steps} of {run!r}"
        wait_until(lambda: len(run.metrics()) >= steps, what, PATIENCE_SECONDS)
        return run

    def reach_state(self, run: nbkit.Run, state: RunState) -> nbkit.Run:
        """Wait until a run is in a state, as readers see it."""
        what = f"{run!r} is {state}"
        wait_until(lambda: run.state is state, what, PATIENCE_SECONDS)
        return run

    def end(self, run: nbkit.Run) -> nbkit.Run:
        """Wait for the end of a run, which leaves no process on either node.

        Until Slurm has cleared the nodes of its job, a run that failed early may seem
        to continue: its first answer may come after the run's last word.
        """
        run.wait(patient(PATIENCE_SECONDS), raise_on_failure=False)
        self.expect_nothing_left(run)
        self._slurm.wait_for_job(job_of(run), *_ENDED)
        wait_until(lambda: run.state.is_final, f"{run!r} has ended for good")
        return run

    def expect_nothing_left(self, *runs: nbkit.Run) -> None:
        """Wait until neither the runs nor Slurm have a process on either node."""

        def nothing() -> bool:
            left = [process for run in runs for process in processes_of_run(run.paths)]
            return not left and not self._slurm.processes()

        wait_until(nothing, "no process is left on either node")


def _linger(run: nbkit.Run) -> None:
    """Let a run take a second for each step from now on."""
    (run.paths.root / "linger").touch()


def hurry(run: nbkit.Run) -> None:
    """Let it take no longer than it needs."""
    (run.paths.root / "linger").unlink()


def losses(run: nbkit.Run) -> dict[int, float]:
    """Return the loss of each step."""
    return {line["step"]: line["loss"] for line in run.metrics()}


def hold_both_nodes(slurm: SlurmCluster, *options: str) -> str:
    """Return the number of a job that runs on both nodes, and leaves no room."""
    # By exec: a child that starts while Slurm ends its parent gets away, and its node
    # takes no other job before it ends.
    usual = ("--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=exec sleep 600")
    job_id = slurm.command("sbatch", "--parsable", *options, *usual).strip()
    slurm.wait_for_job(job_id, "RUNNING")
    return job_id


def job_of(run: nbkit.Run) -> str:
    """Return the number of a run's newest job."""
    return run.submission["job"]["id"]
