"""Runs that Slurm ends before their time: they go on as if nothing had been."""

from __future__ import annotations

import json

import nbkit
from nbkit.launch.supervision.leftovers import processes_of_run
from nbkit.store.record import RunState
from tests.slurm.cluster import SlurmCluster
from tests.slurm.runs import STEPS, TwoNodes, hold_both_nodes, hurry, job_of, losses
from tests.waiting import wait_until


def expect_the_same(run: nbkit.Run, left_alone: dict[int, float]) -> None:
    """Expect one record without a seam, and the losses of a run that was left alone."""
    assert run.state is RunState.FINISHED, run.cause
    assert [line["step"] for line in run.metrics()] == list(range(1, STEPS + 1))
    assert losses(run) == left_alone
    # From its checkpoint: no step was done twice.
    written = map(json.loads, run.paths.metrics.read_text().splitlines())
    assert len([line for line in written if line["kind"] == "step"]) == STEPS
    first, second = run.record["attempts"]
    assert (first["state"], second["state"]) == ("stopped", "finished")
    assert (first["number"], second["number"]) == (0, 1)
    assert run.record["launch"]["job"]["id"] == job_of(run)
    assert run.record["launch"]["job"]["restarts"] == 1


def test_a_run_makes_way_for_another_job_and_goes_on_bit_equal(
    two_nodes: TwoNodes, slurm: SlurmCluster, left_alone: dict[int, float]
):
    run = two_nodes.launch(
        lingering=True, slurm={"slurm_partition": "low", "slurm_exclusive": True}
    )
    two_nodes.reach(run)

    other = hold_both_nodes(slurm, "--partition=high")

    two_nodes.reach_state(run, RunState.QUEUED)
    assert "preempted by another job" in (run.queue or {})["reason"]
    wait_until(lambda: not processes_of_run(run.paths), "nothing of it is left")
    hurry(run)
    slurm.command("scancel", other)
    two_nodes.end(run)
    expect_the_same(run, left_alone)
    assert run.record["attempts"][0]["message"].startswith("stopped by Slurm (")
    assert run.record["launch"]["job"]["timeouts"] == 0
