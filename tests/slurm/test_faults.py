"""Every fault once on two nodes: it is named with its node, and nothing is left."""

from __future__ import annotations

import os
import signal

import pytest

import nbkit
from nbkit.store.record import RunState, read_json
from tests.slurm.cluster import SlurmCluster
from tests.slurm.runs import PATIENCE_SECONDS, TwoNodes, hurry, job_of, losses
from tests.waiting import hang_limit, patient, wait_until

LAST_RANK = 1
"""That of the second node; runs of two ranks on a node are in test_runs.py."""


@pytest.fixture
def bad_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a model that misbehaves do so in the last rank."""
    monkeypatch.setenv("BAD_RANK", str(LAST_RANK))


def _rank_pid(run: nbkit.Run, rank: int) -> int:
    identity = read_json(run.paths.rank(run.attempt, rank).process)
    assert identity is not None
    return identity["pid"]


def _supervisor_pid(run: nbkit.Run) -> int:
    return run.record["supervisor"]["pid"]


@pytest.mark.usefixtures("bad_rank")
def test_ranks_that_hang_and_raise_are_named_with_their_node(
    two_nodes: TwoNodes, slurm: SlurmCluster
):
    # The limit has to be above the time in which ranks start: another run fails in it.
    hung = two_nodes.launch(model="sleeps", hang_timeout_seconds=hang_limit(30))
    run = two_nodes.launch(model="raises")
    run.wait(patient(PATIENCE_SECONDS), raise_on_failure=False)

    assert run.state is RunState.FAILED
    cause = run.cause or {}
    assert (cause["rank"], cause["node"]) == (LAST_RANK, "n2")
    assert cause["message"] == "ValueError: the bad rank raises"
    assert "_raise" in cause["traceback"]
    assert [line["step"] for line in run.metrics()] == [1, 2]
    slurm.wait_for_job(job_of(run), "FAILED")

    # It is told from the one that waits for it on another node.
    two_nodes.end(hung)
    two_nodes.expect_nothing_left(run)
    assert hung.state is RunState.FAILED
    cause = hung.cause or {}
    assert (cause["kind"], cause["rank"]) == ("hang", LAST_RANK)
    assert f"rank {LAST_RANK} is computing, step 3" in cause["message"]
    assert set(cause["stacks"]) == {"0", "1"}
    assert "nbkit_test_models.py" in cause["stacks"]["1"]
    assert "Current thread" in cause["stacks"]["0"]


def test_a_killed_rank_starts_over_then_a_stop_is_gone_on_from_bit_equal(
    two_nodes: TwoNodes, left_alone: dict[int, float]
):
    run = two_nodes.launch(lingering=True, max_restarts=1, checkpoint_period_steps=2)
    two_nodes.reach(run)
    os.kill(_rank_pid(run, LAST_RANK), signal.SIGKILL)
    wait_until(lambda: run.attempt == 1, "the ranks start over in the same job")
    two_nodes.reach(run, len(run.metrics()) + 1)

    run.stop()

    two_nodes.expect_nothing_left(run)
    assert run.state is RunState.STOPPED
    assert run.cause is not None
    assert (run.cause["by"], run.cause["forced"]) == ("user", False)
    killed, stopped = run.record["attempts"]
    assert "SIGKILL" in killed["message"]
    assert killed["ranks"][LAST_RANK]["signal"] == "SIGKILL"
    assert killed["ranks"][LAST_RANK]["node"] == "n2"
    assert stopped["state"] == "stopped"
    first_job = job_of(run)

    hurry(run)
    two_nodes.end(run.resume())

    assert run.state is RunState.FINISHED, run.cause
    assert job_of(run) != first_job
    assert losses(run) == left_alone
    assert len(run.record["attempts"]) == 3


def test_scancel_from_a_shell_stops_a_run_with_a_checkpoint(
    two_nodes: TwoNodes, slurm: SlurmCluster
):
    run = two_nodes.reach(two_nodes.launch(model="slow", steps=10_000))

    slurm.command("scancel", job_of(run))

    two_nodes.end(run)
    assert run.state is RunState.STOPPED
    assert run.cause is not None
    assert (run.cause["by"], run.cause["forced"]) == ("slurm", False)
    assert any(run.paths.checkpoints.glob("*/complete.json"))


def test_a_killed_supervisor_takes_both_nodes_along_and_the_run_is_lost(
    two_nodes: TwoNodes,
):
    run = two_nodes.reach(two_nodes.launch(model="slow", steps=10_000))

    os.kill(_supervisor_pid(run), signal.SIGKILL)

    two_nodes.end(run)
    assert run.state is RunState.LOST
    cause = run.cause or {}
    assert cause["kind"] == "lost"
    assert f"Slurm job {job_of(run)}: FAILED on n[1-2]" in cause["message"]
    assert len(run.metrics()) >= 3


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
