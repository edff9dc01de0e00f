"""Runs on two nodes that fail, lose a node or make way: what is said, what goes on."""

from __future__ import annotations

import json

import pytest

import nbkit
from nbkit.launch.supervision.leftovers import processes_of_run
from nbkit.store.record import RunState
from tests.slurm.cluster import SlurmCluster
from tests.slurm.runs import (
    PATIENCE_SECONDS,
    STEPS,
    TwoNodes,
    hold_both_nodes,
    hurry,
    job_of,
    losses,
)
from tests.waiting import patient, wait_until

LAST_RANK = 1
"""That of the second node; two ranks on a node are in test_runs.py."""


@pytest.fixture
def bad_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a model that misbehaves do so in the last rank."""
    monkeypatch.setenv("BAD_RANK", str(LAST_RANK))


@pytest.mark.usefixtures("bad_rank")
def test_a_rank_that_raises_is_named_with_its_node(
    two_nodes: TwoNodes, slurm: SlurmCluster
):
    run = two_nodes.launch(model="raises")
    run.wait(patient(PATIENCE_SECONDS), raise_on_failure=False)

    assert run.state is RunState.FAILED
    cause = run.cause or {}
    assert (cause["rank"], cause["node"]) == (LAST_RANK, "n2")
    assert cause["message"] == "ValueError: the bad rank raises"
    assert "_raise" in cause["traceback"]
    assert [line["step"] for line in run.metrics()] == [1, 2]
    slurm.wait_for_job(job_of(run), "FAILED")
    two_nodes.expect_nothing_left(run)


def test_a_lost_node_is_named_and_the_run_goes_on_once_it_is_back(
    two_nodes: TwoNodes, slurm: SlurmCluster, left_alone: dict[int, float]
):
    # Restarts are for ranks: without the node they could not start.
    run = two_nodes.launch(lingering=True, checkpoint_period_steps=2, max_restarts=1)
    two_nodes.reach(run, 5)

    slurm.kill_node("n2")

    two_nodes.reach_state(run, RunState.QUEUED)
    two_nodes.expect_nothing_left(run)
    hurry(run)
    slurm.restart_node("n2")
    two_nodes.end(run)
    assert run.state is RunState.FINISHED, run.cause
    lost, again = run.record["attempts"]
    assert "node n2 was lost" in lost["message"]
    assert again["state"] == "finished"
    assert losses(run) == left_alone
    assert run.record["launch"]["job"]["restarts"] == 1


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
