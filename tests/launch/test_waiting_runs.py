"""Runs that wait for their devices."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys

import pynvml
import pytest

import nbkit
from nbkit.launch.devices.choice import request_devices
from nbkit.launch.devices.claims import leases
from nbkit.launch.devices.pool_folder import pool_folder
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState
from tests.launch.test_gpu_pool import granted, join, own_pool
from tests.telemetry.conftest import FAKE_NVML
from tests.telemetry.fake_nvml.fake_driver import FakeDriver, FakeGpu
from tests.waiting import wait_until

__all__ = ["join", "own_pool"]


def test_waiting_run_gpu_of_stranger(small, monkeypatch):
    # Five processes of 1 GiB each on 80 GiB: more than bare contexts.
    pids = (os.getppid(), *(2**22 + n for n in range(4)))
    FakeDriver([FakeGpu("GPU-a", pids=pids)]).install(pynvml, monkeypatch.setattr)
    described = {"gpus": [{"uuid": "GPU-a", "pids": pids}]}
    monkeypatch.setenv("FAKE_NVML", json.dumps(described))
    monkeypatch.setenv("PYTHONPATH", str(FAKE_NVML), prepend=os.pathsep)

    run = nbkit.launch(small(device="cuda", gpus=1, oversubscribe=False))

    wait_until(lambda: run.state is RunState.QUEUED, "the run to wait")
    # Before that it waits for a driver that has not answered yet.
    stranger = f"process {os.getppid()} ("
    wait_until(lambda: stranger in run.record["queue"]["reason"], "the stranger")
    queue = run.record["queue"]
    assert (queue["position"], queue["length"]) == (1, 1)
    assert "and 4 more holds GPU 0" in queue["reason"]
    run.stop()
    assert run.state is RunState.STOPPED
    assert run.cause["message"] == "stopped by user, before its ranks were started"
    assert run.record["queue"] is None
    assert leases("cuda") == {}


@pytest.fixture
def all_cpus_are_held(join, small):
    config = small(gpus=1, oversubscribe=False)
    wanted = request_devices(config)
    lease = granted(
        join("holder", len(wanted.candidates), candidates=wanted.candidates, kind="cpu")
    )
    yield config
    lease.release()


def test_waiting_run_owner_exit(all_cpus_are_held):
    code = (
        "import nbkit, sys\n"
        "config = nbkit.ExperimentConfig.from_json(sys.argv[1])\n"
        "print(nbkit.launch(config, on_owner_exit='stop').run_id, flush=True)\n"
        "input()"
    )
    argv = [sys.executable, "-c", code, all_cpus_are_held.to_json()]
    with subprocess.Popen(argv, stdin=-1, stdout=-1, text=True) as owner:
        run = nbkit.attach(owner.stdout.readline().strip())
        wait_until(lambda: run.state is RunState.QUEUED, "the run to wait")
        owner.communicate("\n")

    run.wait(raise_on_failure=False)
    assert run.state is RunState.STOPPED
    assert run.cause["by"] == "owner exit"


def test_waiting_run_killed_supervisor(all_cpus_are_held, join):
    run = nbkit.launch(all_cpus_are_held)
    wait_until(lambda: run.state is RunState.QUEUED, "the run to wait")
    behind = join("behind", 1, candidates=[("cpu-0", "CPU 0")], kind="cpu")
    # The pool tells nothing while the supervisor, too, asks for its place.
    assert wait_until(behind.attempt, "a place").position == 2

    os.kill(run.record["supervisor"]["pid"], signal.SIGKILL)

    wait_until(lambda: run.state is RunState.LOST, "its end")
    assert behind.attempt().position == 1


def test_waiting_run_removed_folder(all_cpus_are_held):
    run = nbkit.launch(all_cpus_are_held)
    wait_until(lambda: run.state is RunState.QUEUED, "the run to wait")
    supervisor = ProcessIdentity.from_dict(run.submission["supervisor"])

    shutil.rmtree(run.paths.root)

    wait_until(lambda: not supervisor.is_alive(), "its supervisor to end")


def test_launch_interrupted_leaves_queue(small, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("nbkit.launch.local.subprocess.run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        nbkit.launch(small())

    assert not list(pool_folder().glob("claims/*"))


def launch_another():
    nbkit.launch(nbkit.context, gpus=2, device="cpu", oversubscribe=False)


def test_launch_that_waits_for_itself():
    run = nbkit.launch(launch_another, device="cpu").wait(raise_on_failure=False)

    assert "(deadlock)" in run.cause["message"]
