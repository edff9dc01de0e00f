"""A run's wait for its devices, as its supervisor does it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from nbkit.launch.devices.pool import Lease
from nbkit.launch.supervision.queue import wait_for_devices
from nbkit.store.processes import ProcessIdentity
from tests.launch.test_gpu_pool import join, own_pool
from tests.telemetry.conftest import drive_child
from tests.telemetry.test_gpu_users import kernel

__all__ = ["drive_child", "join", "kernel", "own_pool"]

GIBIBYTE = 2**30
STRANGER = 2**22 + 1  # above the largest pid of Linux


class Journal:
    """What a supervisor writes, kept here."""

    error = None

    def __init__(self):
        self.record = {"name": "one", "queue": None, "launch": {}}
        self.events = []

    def set_state(self, state, **details):
        self.events.append((state, details))

    def write_record(self):
        pass

    def write_heartbeat(self):
        pass

    def event(self, event, **details):
        self.events.append((event, details))


def wait(tmp_path, claim, owner, looks):
    """Return what a run gets that is stopped after some looks at the queue."""
    requests = iter([[]] * looks + [[{"by": "user"}]])
    journal = Journal()
    stop = SimpleNamespace(look=lambda: next(requests))
    got = wait_for_devices(tmp_path, journal, claim, owner, stop)
    return got, journal


@pytest.mark.parametrize("is_host", [False, True])
def test_queue_kernel_in_container(
    is_host, tmp_path, join, drive_child, kernel, monkeypatch
):
    monkeypatch.setattr("nbkit.telemetry.gpu_users.pids_are_the_hosts", lambda: is_host)
    drive_child(
        {"uuid": "GPU-a", "pids": [STRANGER], "memory_bytes": 10 * GIBIBYTE},
        {"uuid": "GPU-b"},
    )
    claim = join("one", 2)
    owner = ProcessIdentity.of(kernel)

    got, journal = wait(tmp_path, claim, owner, looks=3 if is_host else 500)

    if is_host:
        assert got == {"by": "user"}
        return
    assert isinstance(got, Lease)
    got.release()
    assert got.devices == ("GPU-a", "GPU-b")
    (said,) = journal.record["launch"]["unverified_devices"].values()
    assert f"process {STRANGER}" in said
    assert "maybe this kernel" in said
    assert journal.events[-1][0] == "unverified_devices"


def test_queue_certain_device_first(tmp_path, join, drive_child, kernel, monkeypatch):
    monkeypatch.setattr("nbkit.telemetry.gpu_users.pids_are_the_hosts", lambda: False)
    drive_child(
        {"uuid": "GPU-a", "pids": [STRANGER], "memory_bytes": 10 * GIBIBYTE},
        {"uuid": "GPU-b"},
    )
    claim = join("one", 1)

    got, journal = wait(tmp_path, claim, ProcessIdentity.of(kernel), looks=500)

    assert isinstance(got, Lease)
    got.release()
    assert got.devices == ("GPU-b",)
    assert "unverified_devices" not in journal.record["launch"]


def test_queue_stop_while_driver_starts(
    tmp_path, join, drive_child, kernel, monkeypatch
):
    cold = tmp_path / "cold"
    cold.touch()
    drive_child(
        {
            "uuid": "GPU-a",
            "hangs_in": "nvmlDeviceGetHandleByIndex",
            "hangs_while": str(cold),
        }
    )
    claim = join("one", 1)

    got, journal = wait(tmp_path, claim, ProcessIdentity.of(kernel), looks=2)

    assert got == {"by": "user"}
    assert "a driver that is initializing" in journal.record["queue"]["reason"]
