"""Runs on two nodes: launched from a job, in the queue, and refused by one node."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import nbkit
from nbkit.launch.run import attach
from nbkit.store.record import RunState
from tests.slurm.cluster import SlurmCluster
from tests.slurm.conftest import empty_after_each_test, plugins, small, store, two_nodes
from tests.slurm.runs import (
    PATIENCE_SECONDS,
    TwoNodes,
    hold_both_nodes,
    hurry,
    job_of,
    losses,
)
from tests.waiting import patient, wait_until

__all__ = ["empty_after_each_test", "plugins", "small", "store", "two_nodes"]


ACTIVATE = f". {sys.prefix}/bin/activate"
ON_N2 = '[ "$SLURMD_NODENAME" = n1 ] ||'


def test_four_ranks_compute_the_same_on_two_nodes_and_here(two_nodes: TwoNodes):
    there = two_nodes.end(two_nodes.launch(gpus=2))
    here = two_nodes.launch(engine="local", nnodes=1, gpus=4).wait()

    assert losses(there) == losses(here)


LAUNCH = """
import sys, time
from pathlib import Path
from nbkit import ExperimentConfig, launch
run = launch(ExperimentConfig.from_store(Path(sys.argv[1]).read_bytes()))
(run.paths.root / "linger").touch()
Path(sys.argv[2]).write_text(run.run_id)
time.sleep(600)
"""


KEPT = "PATH,PYTHONPATH,NBKIT_HOME,SLURM_CONF"
"""A hub hands on what it names, as batchspawner's ``keepvars`` do."""


def test_a_run_that_a_job_has_launched_is_a_job_of_its_own_and_outlives_it(
    slurm: SlurmCluster, two_nodes: TwoNodes, tmp_path: Path
):
    config, launched = tmp_path / "config.json", tmp_path / "run_id"
    config.write_text(two_nodes.config().to_json())
    program = tmp_path / "program.py"
    program.write_text(LAUNCH)
    server = tmp_path / "server.sh"
    server.write_text(
        "#!/bin/bash\n"
        f"#SBATCH --export={KEPT}\n"
        "#SBATCH --nodes=1 --ntasks=1 --mem=500M --time=20\n"
        f"#SBATCH --output={tmp_path}/server.log\n"
        f"srun {sys.executable} {program} {config} {launched}\n"
    )

    outer = slurm.command("sbatch", "--parsable", str(server)).strip()
    run_id = wait_until(
        lambda: launched.exists() and launched.read_text(), "the server has launched"
    )
    run = attach(str(run_id))
    two_nodes.reach(run)
    slurm.command("scancel", outer)  # as the hub does that stops a server
    slurm.wait_for_job(outer, "CANCELLED")
    hurry(run)
    two_nodes.end(run)

    assert run.state is RunState.FINISHED, run.cause
    assert job_of(run) != outer
    # Slurm clears the nodes of a job after its processes have ended.
    job = slurm.wait_for_job(job_of(run), "COMPLETED")
    assert job["NumNodes"] == "2"
    assert run.record["launch"]["job"]["nodes"] == ["n1", "n2"]


ALL_GPUS_OF_A_NODE = {"gpus_per_node": 2}


def test_a_run_waits_for_gpus_and_starts_once_another_has_ended(
    two_nodes: TwoNodes, slurm: SlurmCluster
):
    one = {"nnodes": 1, "gpus": 1, "slurm": ALL_GPUS_OF_A_NODE}
    first, second = (
        two_nodes.launch(model="slow", steps=10_000, **one) for _ in range(2)
    )
    slurm.wait_for_job(job_of(second), "RUNNING")

    third = two_nodes.launch(**one)

    two_nodes.reach_state(third, RunState.QUEUED)
    wait_until(lambda: "(Resources)" in (third.queue or {}).get("reason", ""), "a word")
    assert third.record == {}
    two_nodes.reach(first).stop()
    third.wait(patient(PATIENCE_SECONDS))
    assert third.state is RunState.FINISHED
    node = slurm.job(job_of(third))["NodeList"]
    assert node == slurm.job(job_of(first))["NodeList"]
    second.stop()
    two_nodes.expect_nothing_left(first, second, third)


def end_of(two_nodes: TwoNodes, *lines: str) -> str:
    """Return why a run failed before its ranks were started."""
    run = two_nodes.launch(slurm={"setup": (ACTIVATE, *lines)})
    two_nodes.end(run)
    assert run.state is RunState.FAILED
    assert (run.cause or {})["kind"] == "launch"
    (attempt,) = run.record["attempts"]
    assert all(rank["pid"] is None for rank in attempt["ranks"])
    return (run.cause or {})["message"]


def test_a_setup_line_that_fails_on_one_node_is_named_with_it(two_nodes: TwoNodes):
    said = end_of(two_nodes, f"{ON_N2} false")

    assert said.startswith("node n2: a slurm.setup line failed with exit status 1: ")


def test_a_setup_line_that_fails_is_named(two_nodes: TwoNodes):
    run = two_nodes.launch(slurm={"setup": (ACTIVATE, "module load moon")})

    two_nodes.end(run)

    assert run.state is RunState.LOST
    log = run.paths.job_log(job_of(run))
    assert str(log) in (run.cause or {})["message"]
    assert ": module load moon; correct it" in log.read_text()


def test_a_node_with_another_nbkit_is_named(two_nodes: TwoNodes, tmp_path: Path):
    other = tmp_path / "other" / "jupyterlab_nbkit-0.0.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Name: jupyterlab-nbkit\nVersion: 0.0.1\n")

    said = end_of(two_nodes, f"{ON_N2} export PYTHONPATH={other.parent}:$PYTHONPATH")

    assert said.startswith("node n2: its environment differs from the launch env")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_node_that_does_not_see_the_store_is_named(
    two_nodes: TwoNodes, store: Path, tmp_path: Path
):
    wrapper = tmp_path / "bin" / "python"
    wrapper.parent.mkdir()
    hide = f'mount -t tmpfs none "{store}" && exec "$0" "$@"'
    wrapper.write_text(
        f"#!/bin/sh\nexec unshare --mount sh -c '{hide}' {sys.executable} \"$@\"\n"
    )
    wrapper.chmod(0o755)

    said = end_of(two_nodes, f"{ON_N2} export PATH={wrapper.parent}:$PATH")

    assert said.startswith("node n2: ")
    assert "Set NBKIT_HOME to a folder on a shared" in said


LAUNCHES = """
import sys, nbkit
config = nbkit.ExperimentConfig.from_json(sys.argv[1])
print(nbkit.launch(config, on_owner_exit="stop").run_id, flush=True)
sys.stdin.read()
"""


def test_a_run_leaves_the_queue_when_the_notebook_that_waits_for_it_is_killed(
    two_nodes: TwoNodes, slurm: SlurmCluster
):
    holder = hold_both_nodes(slurm)
    command = [sys.executable, "-c", LAUNCHES, two_nodes.config().to_json()]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as notebook:
        assert notebook.stdout is not None
        waiting = nbkit.attach(notebook.stdout.readline().strip())
        two_nodes.reach_state(waiting, RunState.QUEUED)

        notebook.kill()

    two_nodes.reach_state(waiting, RunState.STOPPED)
    assert waiting.cause is not None
    assert "owner exit" in waiting.cause["message"]
    slurm.command("scancel", holder)
    two_nodes.expect_nothing_left(waiting)
