"""Runs on two nodes: from their launch to what is left of them."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

import nbkit
from nbkit.cli.main import main
from nbkit.store.record import RunState
from tests.slurm.cluster import NODES, SlurmCluster
from tests.slurm.runs import STEPS, TwoNodes, job_of

PER_NODE = 2


def test_a_run_of_two_nodes_finishes_and_leaves_no_process(
    finished: nbkit.Run, slurm: SlurmCluster, two_nodes: TwoNodes
):
    two_nodes.expect_nothing_left(finished)
    assert finished.state is RunState.FINISHED
    assert (finished.cause, finished.queue) == (None, None)
    assert [line["step"] for line in finished.metrics()] == list(range(1, STEPS + 1))
    assert all(line["images"] == 8 for line in finished.metrics())
    assert finished.worker["world_size"] == 2
    slurm.wait_for_job(job_of(finished), "COMPLETED")


def test_the_record_says_where_each_rank_was(finished: nbkit.Run):
    record = finished.record

    (attempt,) = record["attempts"]
    places = [(rank["rank"], rank["node"]) for rank in attempt["ranks"]]
    assert places == [(0, "n1"), (1, "n2")]
    assert {rank["exit_code"] for rank in attempt["ranks"]} == {0}
    assert record["launch"]["job"] == {
        "id": job_of(finished),
        "cluster": None,
        "nodes": list(NODES),
        "restarts": 0,
        "timeouts": 0,
    }
    assert record["tags"] == {"study": "s1"}
    assert record["environment"]["packages"]["torch"]
    assert record["machine"] is not None


def test_the_command_line_says_which_job_it_was_and_where(
    finished: nbkit.Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setenv("NBKIT_HOME", str(finished.paths.root.parents[1]))

    assert main(["show", finished.run_id]) == 0

    shown = re.sub(" +", " ", capsys.readouterr().out)
    assert f"\nSlurm:\n job {job_of(finished)}\n nodes n1, n2\n" in shown


def test_a_run_goes_through_its_states_in_order(finished: nbkit.Run):
    events = [event["event"] for event in finished.events]

    states = [event for event in events if event in list(RunState)]
    assert states == ["starting", "running", "finished"]
    assert events.count("ranks_started") == 1
    assert events.count("rank_ended") == 2


def test_every_rank_has_its_log_and_every_node_its_samples(finished: nbkit.Run):
    for rank in range(2):
        assert finished.paths.rank(0, rank).stderr.is_file()
    for node in NODES:
        lines = finished.paths.system(node).read_text().splitlines()
        kinds = [json.loads(line)["kind"] for line in lines]
        assert kinds[0] == "header"
        assert "sample" in kinds
    assert set(finished.record["system"]["nodes"]) == set(NODES)


def test_the_script_of_the_job_is_kept(finished: nbkit.Run):
    script = finished.paths.job_script.read_text()

    assert "#SBATCH --nodes=2\n" in script
    assert f"nbkit.launch.slurm.job {finished.paths.root}\n" in script


def test_the_summary_counts_the_ranks_of_both_nodes(finished: nbkit.Run):
    summary = finished.summary

    assert summary.world_size == 2
    assert summary.n_steps == STEPS - 2
    assert summary.images_per_second is not None
    assert summary.images_per_second > 0


def _look():
    """Return where a rank finds itself, and its parent, which is torchrun."""
    around = Path(f"/proc/{os.getppid()}/environ").read_bytes().decode().split("\0")
    pairs = (text.partition("=") for text in around)
    parent = {name: value for name, _, value in pairs}
    names = ("COLOUR", "NBKIT_HOME", "NBKIT_NODE", "SHADE", "SLURM_JOB_ID")
    return {
        **{name: os.environ.get(name) for name in names},
        "cwd": str(Path.cwd()),
        "rank": nbkit.context().rank,
        "gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "gpus of torchrun": parent.get("CUDA_VISIBLE_DEVICES"),
    }


def test_a_function_finds_on_every_node_what_was_around_its_launch(
    two_nodes: TwoNodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # A program of the user's, which prints before anything else does.
    (tmp_path / "sitecustomize.py").write_text("print('a module was loaded')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("COLOUR", "blue")
    # As in a notebook that itself runs in a job.
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_NNODES", "1")
    monkeypatch.setenv("SBATCH_TIMELIMIT", "nonsense")
    monkeypatch.chdir(tmp_path)

    run = nbkit.launch(
        _look,
        engine="slurm",
        device="cpu",
        nnodes=2,
        gpus=PER_NODE,
        slurm={
            "gpus_per_node": 2,
            "timeout_min": 5,
            "setup": (f". {sys.prefix}/bin/activate", "export SHADE=dark; echo set up"),
        },
    )
    two_nodes.end(run)

    assert run.state is RunState.FINISHED, run.cause
    usual = {
        "COLOUR": "blue",
        "NBKIT_HOME": os.environ["NBKIT_HOME"],
        "SHADE": "dark",
        "SLURM_JOB_ID": job_of(run),
        "cwd": str(tmp_path),
        "gpus": "",
        "gpus of torchrun": "0,1",
    }
    assert run.returns == [
        {**usual, "rank": rank, "NBKIT_NODE": NODES[rank // PER_NODE]}
        for rank in range(4)
    ]
    (attempt,) = run.record["attempts"]
    places = [(rank["rank"], rank["node"]) for rank in attempt["ranks"]]
    assert places == [(0, "n1"), (1, "n1"), (2, "n2"), (3, "n2")]
    said = run.paths.job_log(job_of(run)).read_text()
    assert "a module was loaded" in said
    assert "set up" in said
