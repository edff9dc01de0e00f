"""Faults on two nodes that take long: ranks, supervisors, and jobs that Slurm ends."""

from __future__ import annotations

import os
import signal

import pytest

import nbkit
from nbkit.store.record import RunState, read_json
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import (
    empty_after_each_test,
    finished,
    left_alone,
    plugins,
    small,
    store,
    two_nodes,
)
from tests.slurm.runs import TwoNodes, hurry, job_of, losses
from tests.slurm.test_faults import LAST_RANK, bad_rank, expect_the_same
from tests.waiting import hang_limit, wait_until

__all__ = [
    "bad_rank",
    "empty_after_each_test",
    "finished",
    "left_alone",
    "plugins",
    "small",
    "store",
    "two_nodes",
]


def test_scancel_of_a_run_whose_ranks_are_not_ready_stops_it(
    two_nodes: TwoNodes, slurm: SlurmCluster
):
    run = two_nodes.launch(model="dawdles")
    ranks = run.config.gpus * run.config.nnodes
    there = run.paths.root.glob
    wait_until(lambda: len(list(there("dawdles_*"))) == ranks, "all ranks", 120)

    slurm.command("scancel", job_of(run))

    two_nodes.end(run)
    assert run.state is RunState.STOPPED
    assert run.record["state"] == "stopped"  # the supervisor's own last word
    assert run.record["cause"]["by"] == "slurm"
    assert "before its ranks were ready" in run.record["cause"]["message"]
    assert run.metrics() == []


def _rank_pid(run: nbkit.Run, rank: int) -> int:
    identity = read_json(run.paths.rank(run.attempt, rank).process)
    assert identity is not None
    return identity["pid"]


def _supervisor_pid(run: nbkit.Run) -> int:
    return run.record["supervisor"]["pid"]


@pytest.mark.usefixtures("bad_rank")
def test_a_rank_that_hangs_is_told_from_the_one_that_waits_for_it(two_nodes: TwoNodes):
    # The limit has to be above the time in which ranks start.
    hung = two_nodes.launch(model="sleeps", hang_timeout_seconds=hang_limit(30))
    two_nodes.end(hung)

    assert hung.state is RunState.FAILED
    cause = hung.cause or {}
    assert (cause["kind"], cause["rank"]) == ("hang", LAST_RANK)
    assert f"rank {LAST_RANK} is computing at step 3" in cause["message"]
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


def test_a_run_at_its_time_limit_waits_again_and_goes_on_bit_equal(
    two_nodes: TwoNodes, slurm: SlurmCluster, left_alone: dict[int, float]
):
    run = two_nodes.launch(
        lingering=True, slurm={"timeout_min": 20, "slurm_signal_delay_s": 600}
    )
    two_nodes.reach(run)
    job_id = job_of(run)

    # Slurm looks at limits twice a minute: the signal is due at the next look, and the
    # limit itself long after it.
    slurm.command("scontrol", "update", f"JobId={job_id}", "TimeLimit=10")

    waits = "the run is in the queue again"
    queue = wait_until(lambda: run.record.get("queue"), waits, 90)
    assert queue["reason"].startswith("Slurm: time limit reached")
    slurm.wait_for_job(job_id, "PENDING")
    slurm.command("scontrol", "hold", job_id)
    slurm.command("scontrol", "update", f"JobId={job_id}", "TimeLimit=20")
    two_nodes.reach_state(run, RunState.QUEUED)
    assert "time limit reached" in (run.queue or {})["reason"]
    two_nodes.expect_nothing_left(run)
    hurry(run)
    slurm.command("scontrol", "release", job_id)
    two_nodes.end(run)
    expect_the_same(run, left_alone)
    assert run.record["launch"]["job"]["timeouts"] == 1
    assert run.record["attempts"][0]["message"].startswith("stopped by its time limit")
    assert run.record["queue"] is None
