"""Runs that wait in Slurm's queue, and for what; those that are refused say why."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import nbkit
from nbkit.errors import ConfigError, DeviceError, LaunchError
from nbkit.store import jobs
from tests.slurm.cluster import SlurmCluster
from tests.slurm.runs import TwoNodes, hold_both_nodes
from tests.waiting import wait_until

MANY = 5


@pytest.fixture
def squeue_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], list[str]]:
    """Return what tells the arguments of every call of squeue so far."""
    real = shutil.which("squeue")
    calls = tmp_path / "squeue.calls"
    calls.touch()
    wrapper = tmp_path / "bin" / "squeue"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\necho "$*" >>"{calls}"\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(wrapper.parent), prepend=os.pathsep)
    return lambda: calls.read_text().splitlines()


def test_many_runs_wait_behind_a_job_and_each_look_asks_slurm_once(
    two_nodes: TwoNodes,
    slurm: SlurmCluster,
    squeue_calls: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
):
    def forget() -> None:
        """Look as another process would, which has none of the answers."""
        monkeypatch.setattr(jobs, "clusters", {})

    holder = hold_both_nodes(slurm)
    runs = [two_nodes.launch() for _ in range(MANY)]
    assert squeue_calls() == []

    forget()
    listed = nbkit.runs(state="queued")
    assert len(squeue_calls()) == 1
    assert {run.run_id for run in listed} == {run.run_id for run in runs}
    reasons = [(run.queue or {})["reason"] for run in listed]
    assert all(reason.startswith("Slurm: ") for reason in reasons)

    for run in runs:
        run.stop(wait=False)
    before = len(squeue_calls())
    forget()
    # A reader waits two seconds for Slurm; its answer then comes to the next look.
    wait_until(lambda: len(nbkit.runs(state="stopped")) == MANY, "all are stopped")
    assert len(squeue_calls()) == before + 1
    assert slurm.command("squeue", "--noheader", "--format=%i").split() == [holder]
    assert all(run.record == {} for run in runs)
    assert (runs[0].cause or {})["by"] == "user"
    slurm.command("scancel", holder)
    two_nodes.expect_nothing_left(*runs)


@pytest.mark.parametrize("fails", ["write_json", "detach"])
def test_a_job_leaves_the_queue_when_its_launch_fails_after_sbatch(
    two_nodes: TwoNodes,
    slurm: SlurmCluster,
    monkeypatch: pytest.MonkeyPatch,
    fails: str,
):
    def fail(*_: object) -> None:
        message = slurm.command("squeue", "--noheader", "--format=%i")
        raise RuntimeError(message)

    holder = hold_both_nodes(slurm)
    monkeypatch.setattr(f"nbkit.launch.submit.{fails}", fail)

    with pytest.raises(RuntimeError) as failure:
        nbkit.launch(two_nodes.config(), on_owner_exit="stop")

    assert len(str(failure.value).split()) == 2, "its job was not in the queue"
    assert slurm.command("squeue", "--noheader", "--format=%i").split() == [holder]
    slurm.command("scancel", holder)


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        (
            {"slurm": {"slurm_partition": "moon"}},
            LaunchError,
            "invalid partition specified: moon",
        ),
        ({"cpus": [0, 1]}, ConfigError, "because Slurm assigns cpus"),
    ],
    ids=["partition", "cpus"],
)
def test_what_slurm_or_its_cluster_cannot_do_is_refused(
    two_nodes: TwoNodes, store: Path, fields, error, text
):
    with pytest.raises(error, match=text):
        two_nodes.launch(**fields)

    assert not list(store.glob("runs/*"))


def test_a_store_in_memory_is_refused(
    two_nodes: TwoNodes, monkeypatch: pytest.MonkeyPatch
):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        monkeypatch.setenv("NBKIT_HOME", folder)

        with pytest.raises(DeviceError, match=r"is in memory \(tmpfs\)"):
            two_nodes.launch()

        assert not list(Path(folder).glob("runs/*"))
