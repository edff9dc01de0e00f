"""Slurm cancels a run while its ranks start."""

from __future__ import annotations

from nbkit.store.record import RunState
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import (
    empty_after_each_test,
    plugins,
    small,
    store,
    two_nodes,
)
from tests.slurm.runs import TwoNodes, job_of
from tests.waiting import wait_until

__all__ = ["empty_after_each_test", "plugins", "small", "store", "two_nodes"]


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
