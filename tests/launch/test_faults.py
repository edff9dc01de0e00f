"""Every fault once: state and cause are right, nothing is left, metrics stay."""

from __future__ import annotations

import contextlib
import os
import subprocess

import pytest

import nbkit
from nbkit.errors import RunFailedError, StoreError
from nbkit.launch.code.trust import permit_new
from nbkit.launch.submit import submit
from nbkit.launch.supervision.leftovers import processes_of_run
from nbkit.store.record import RunState
from nbkit.store.stored_runs import create_run_folder
from tests.launch import faults
from tests.waiting import patient, wait_until


@pytest.mark.parametrize(
    ("fault", "signal", "steps"),
    [
        (faults.rank_raises, None, 2),
        (faults.rank_is_killed, "SIGKILL", 3),
    ],
)
def test_run_whose_rank_fails(fault, signal, steps, small):
    outcome = fault(small)

    assert outcome.state is RunState.FAILED
    assert (outcome.cause["rank"], outcome.cause["signal"]) == (1, signal)
    assert len(outcome.metrics) >= steps
    if signal is None:
        assert outcome.cause["message"] == "ValueError: the bad rank raises"
        assert "_raise" in outcome.cause["traceback"]


def test_run_whose_rank_hangs(small):
    outcome = faults.rank_hangs(small)

    assert outcome.state is RunState.FAILED
    assert (outcome.cause["kind"], outcome.cause["rank"]) == ("hang", 1)
    assert "rank 1 is computing at step 3" in outcome.cause["message"]
    # Of every rank; the plug-in's sleep is in that of the one that sleeps.
    assert set(outcome.cause["stacks"]) == {"0", "1"}
    assert "nbkit_test_models.py" in outcome.cause["stacks"]["1"]
    assert "Current thread" in outcome.cause["stacks"]["0"]


def test_run_whose_supervisor_is_killed(small):
    outcome = faults.supervisor_is_killed(small)

    assert outcome.state is RunState.LOST
    assert outcome.cause["kind"] == "lost"
    assert len(outcome.metrics) >= 3


def test_stop_again(small):
    run = nbkit.launch(small(model="stubborn", steps=10_000))
    wait_until(run.metrics, "a first step", 120)

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


def test_run_whose_rank_exits(small):
    run = nbkit.launch(small(model="exits", gpus=2, steps=1000))

    with pytest.raises(RunFailedError, match="exit code 3 without a Python exception"):
        run.wait(patient(120))

    assert run.cause is not None
    assert run.cause["rank"] == 1


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
    )
    run = nbkit.Run(paths.root).wait(patient(60), raise_on_failure=False)

    assert run.state is RunState.FAILED
    assert run.cause["kind"] == "supervisor"
    assert "FileExistsError" in run.cause["message"]


def test_run_whose_store_vanishes(small):
    run = nbkit.launch(small(model="slow", steps=10_000))
    wait_until(run.metrics, "a first step", 120)
    supervisor = run.record["supervisor"]

    gone = run.paths.root.with_name("moved-away")
    run.paths.root.rename(gone)

    with pytest.raises(StoreError, match="was removed"):
        run.wait(patient(120))
    identity = nbkit.store.processes.ProcessIdentity.from_dict(supervisor)
    wait_until(lambda: not identity.exists(), "the supervisor's end")
    assert len(nbkit.Run(gone).metrics()) >= 1


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
