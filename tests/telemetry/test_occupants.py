"""Who uses GPUs without a lease of them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nbkit.telemetry.occupants import Occupants, occupants
from nbkit.telemetry.sample import GpuProcess, GpuSample, MigSample
from nbkit.telemetry.sampler import Sampler
from tests.telemetry.fake_nvml.fake_driver import FakeGpu, FakeMig

GIBIBYTE = 2**30
NOBODY = 2**22 + 1  # above the largest pid of Linux


def gpu(*gibibytes, **fields):
    processes = tuple(
        GpuProcess(NOBODY + n, None if size is None else int(size * GIBIBYTE))
        for n, size in enumerate(gibibytes)
    )
    return GpuSample(
        0, "GPU-a", memory_total_bytes=80 * GIBIBYTE, processes=processes, **fields
    )


@pytest.mark.parametrize(
    ("gibibytes", "said"),
    [
        ((), None),
        ((0.5, 0.5), None),
        ((40.25,), f"process {NOBODY} (of another container) with 40.2 GiB"),
        ((3, 2), f"process {NOBODY} (of another container) with 3.0 GiB and 1 more"),
        ((None,), f"process {NOBODY} (of another container)"),
    ],
    ids=["nobody", "bare contexts", "one", "several", "memory unknown"],
)
def test_a_gpu_is_in_use_from_a_twentieth_of_its_memory_on(gibibytes, said):
    expected = {} if said is None else {"GPU-a": said}

    assert occupants([gpu(*gibibytes)], {"GPU-a", "GPU-b"}, own=()) == expected


def test_ones_own_processes_and_other_gpus_do_not_count():
    assert occupants([gpu(40)], {"GPU-a"}, own={NOBODY}) == {}
    assert occupants([gpu(40)], {"GPU-b"}, own=()) == {}


def test_an_instance_is_in_use_by_its_own_processes_and_memory():
    sample = GpuSample(
        0,
        "GPU-a",
        memory_total_bytes=80 * GIBIBYTE,
        mig_instances=tuple(
            MigSample(f"MIG-{name}", memory_total_bytes=10 * GIBIBYTE) for name in "ab"
        ),
        processes=(GpuProcess(NOBODY, GIBIBYTE, "MIG-b"),),
    )

    assert list(occupants([sample], {"MIG-a", "MIG-b"}, own=())) == ["MIG-b"]


def test_the_tree_of_whoever_asks_does_not_count(drive_child):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as child:
        pids = [os.getpid(), child.pid, *(NOBODY + n for n in range(3))]
        drive_child({"uuid": "GPU-a", "pids": pids})
        # Three strangers of 1 GiB each are less than a twentieth of 80 GiB.
        patient = Occupants(timeout_seconds=60)
        assert patient.ask(["GPU-a"], os.getpid()) == {}
        assert f"process {os.getpid()} (" in patient.ask(["GPU-a"])["GPU-a"]
        child.communicate(b"\n")


def test_a_driver_that_hangs_is_not_waited_for(drive_child):
    drive_child({"uuid": "GPU-a", "hangs_in": "nvmlDeviceGetMemoryInfo"})

    answer = Occupants(timeout_seconds=3).ask(["GPU-a", "GPU-b"])

    assert answer == dict.fromkeys(["GPU-a", "GPU-b"], "a driver that does not answer")


def test_a_question_that_fails_is_no_answer_that_nobody_is_there(monkeypatch):
    monkeypatch.setattr("nbkit.telemetry.occupants.sys.executable", "/bin/false")

    assert "nobody knows who" in Occupants().ask(["GPU-a"])["GPU-a"]


def test_the_sampler_reads_the_gpu_that_contains_an_instance(drive):
    drive(FakeGpu("GPU-a"), FakeGpu("GPU-b", migs=(FakeMig("MIG-b"),)))

    with Sampler(gpu_uuids=["MIG-b"]) as sampler:
        assert [gpu.uuid for gpu in sampler.read().gpus] == ["GPU-b"]
