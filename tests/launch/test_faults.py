"""Faults of a run: state and cause are right, nothing is left, metrics stay.

A rank that raises is in test_functions.py, and one that is killed in test_restarts.py.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

import pytest

import nbkit
from nbkit.errors import RunFailedError, StoreError
from nbkit.launch.code.trust import permit_new
from nbkit.launch.submit import submit
from nbkit.launch.supervision.leftovers import processes_of_run
from nbkit.store.record import RunState
from nbkit.store.stored_runs import create_run_folder
from tests.launch import faults
from tests.launch.test_functions import launch
from tests.waiting import patient, wait_until


def test_run_whose_rank_hangs(small):
    outcome = faults.rank_hangs(small)

    assert outcome.state is RunState.FAILED
    assert (outcome.cause["kind"], outcome.cause["rank"]) == ("hang", 1)
    assert "rank 1 is computing at step 3" in outcome.cause["message"]
    # Of every rank; the plug-in's sleep is in that of the one that sleeps.
    assert set(outcome.cause["stacks"]) == {"0", "1"}
    assert "nbkit_test_models.py" in outcome.cause["stacks"]["1"]
    assert "Current thread" in outcome.cause["stacks"]["0"]


def endless(*, is_stubborn=False):
    """Return a function that logs until its process is ended."""

    def log():
        if is_stubborn:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            nbkit.log({"alive": 1})
            time.sleep(0.02)

    return log


def test_run_whose_supervisor_is_killed():
    run = launch(endless(), tensorboard=False)
    wait_until(lambda: len(run.metrics("log")) >= 3, "three lines", 120)
    os.kill(run.record["supervisor"]["pid"], signal.SIGKILL)
    run.wait(patient(120), raise_on_failure=False)

    wait_until(lambda: not processes_of_run(run.paths), "no process left")
    assert run.state is RunState.LOST
    assert run.cause["kind"] == "lost"
    assert len(run.metrics("log")) >= 3


def test_stop_again():
    run = launch(endless(is_stubborn=True), tensorboard=False)
    wait_until(lambda: run.metrics("log"), "a first line", 120)

    run.stop(grace_seconds=3600, by="the first", wait=False)
    run.stop(grace_seconds=7200, by="the patient", wait=False)
    run.stop(grace_seconds=0, by="the hasty")

    assert run.state is RunState.STOPPED
    assert run.cause["by"] == "the first"
    assert run.cause["forced"] is True


def test_owner_exit_stops_a_run(small):
    outcome = faults.owner_group_is_killed(small)

    assert outcome.state is RunState.STOPPED
    assert outcome.cause["by"] == "owner exit"
    assert outcome.cause["forced"] is False


def test_run_whose_ranks_cannot_be_started(small):
    config = small(gpus=2)
    paths = create_run_folder(config)
    in_the_way = paths.logs / "0" / "1"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("a file where a rank wants its folder")

    permit = permit_new(paths)
    submit(
        config,
        paths,
        permit,
        attempt=0,
        on_owner_exit="keep",
        parameter_sources={},
        tags={},
        environment={},
    )
    run = nbkit.Run(paths.root).wait(patient(60), raise_on_failure=False)

    assert run.state is RunState.FAILED
    assert run.cause["kind"] == "supervisor"
    assert "FileExistsError" in run.cause["message"]


def test_run_whose_store_vanishes():
    run = launch(endless(), tensorboard=False)
    wait_until(lambda: run.metrics("log"), "a first line", 120)
    supervisor = run.record["supervisor"]

    gone = run.paths.root.with_name("moved-away")
    run.paths.root.rename(gone)

    with pytest.raises(StoreError, match="was removed"):
        run.wait(patient(120))
    identity = nbkit.store.processes.ProcessIdentity.from_dict(supervisor)
    wait_until(lambda: not identity.exists(), "the supervisor's end")
    assert len(nbkit.Run(gone).metrics("log")) >= 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_run_whose_disk_is_full(small, store):
    store.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(store)], check=True
    )
    try:
        run = nbkit.launch(small(model="slow", steps=10_000))
        wait_until(lambda: len(run.metrics()) >= 3, "three steps", 120)

        ballast = (store / "ballast").open("wb", buffering=0)
        with contextlib.suppress(OSError), ballast:
            while True:
                ballast.write(b"\0" * 4096)
        with pytest.raises(RunFailedError, match="the disk is full"):
            run.wait(patient(120))

        # What has a file open there keeps the disk mounted.
        wait_until(lambda: not processes_of_run(run.paths), "no process left")
        assert run.cause is not None
        assert run.cause["kind"] == "store"
        steps = [line["step"] for line in run.metrics()]
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) >= 3
    finally:
        subprocess.run(["umount", str(store)], check=True)
