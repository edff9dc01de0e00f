"""Who uses GPUs without a lease of them."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pynvml
import pytest

from nbkit.telemetry.gpu_users import GpuUsers, gpu_users
from nbkit.telemetry.sample import GpuProcess, GpuSample, MigSample
from nbkit.telemetry.sampler import Sampler
from tests.clocks import PlayedTime
from tests.telemetry.fake_nvml.fake_driver import FakeGpu, FakeMig
from tests.telemetry.test_holders import cuda_process
from tests.waiting import wait_until

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

    assert gpu_users([gpu(*gibibytes)], {"GPU-a", "GPU-b"}, own=()) == expected


@pytest.mark.parametrize(
    ("sizes", "used", "is_taken"),
    [
        ((None,), 2.0, False),
        ((None, 30.0), 2.0, False),
        ((None, None), 5.0, True),
        ((None,), None, True),
        ((5.0,), 2.0, True),
    ],
    ids=["little", "one of two known", "much", "nothing known", "known"],
)
def test_where_a_process_has_no_number_the_use_of_its_gpu_decides(
    sizes, used, is_taken
):
    """Windows tells its subsystem for Linux no process's memory."""
    used_bytes = None if used is None else int(used * GIBIBYTE)
    one = gpu(*sizes, memory_used_bytes=used_bytes)

    assert ("GPU-a" in gpu_users([one], {"GPU-a"}, own=())) is is_taken


def test_an_instances_use_decides_where_its_processes_have_no_number():
    parts = tuple(
        MigSample(f"MIG-{name}", memory_used_bytes=used, memory_total_bytes=GIBIBYTE)
        for name, used in (("a", 0), ("b", GIBIBYTE // 2))
    )
    processes = tuple(GpuProcess(NOBODY, None, part.uuid) for part in parts)
    sample = gpu(memory_used_bytes=0, mig_instances=parts)
    sample = dataclasses.replace(sample, processes=processes)

    assert list(gpu_users([sample], {"MIG-a", "MIG-b"}, own=())) == ["MIG-b"]


def test_a_process_whose_id_the_driver_hides_is_not_given_one():
    hidden = gpu(memory_used_bytes=0)
    processes = (GpuProcess(None, 40 * GIBIBYTE),)

    said = gpu_users([dataclasses.replace(hidden, processes=processes)], {"GPU-a"}, ())

    assert said == {"GPU-a": "a process whose id the driver hides with 40.0 GiB"}


def test_ones_own_processes_and_other_gpus_do_not_count():
    assert gpu_users([gpu(40)], {"GPU-a"}, own={NOBODY}) == {}
    assert gpu_users([gpu(40)], {"GPU-b"}, own=()) == {}


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

    assert list(gpu_users([sample], {"MIG-a", "MIG-b"}, own=())) == ["MIG-b"]


@pytest.fixture
def asks():
    """Return a maker of those who ask; their helpers end with the test."""
    made = []

    def make(timeout_seconds=60, patience_seconds=60):
        made.append(GpuUsers(timeout_seconds, patience_seconds))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_the_tree_of_whoever_asks_does_not_count(drive_child, asks):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as child:
        pids = [os.getpid(), child.pid, *(NOBODY + n for n in range(3))]
        drive_child({"uuid": "GPU-a", "pids": pids})
        # Three strangers of 1 GiB each are less than a twentieth of 80 GiB.
        assert asks().ask(["GPU-a"], os.getpid()) == {}
        assert f"process {os.getpid()} (" in asks().ask(["GPU-a"])["GPU-a"]
        child.communicate(b"\n")


def test_a_driver_that_hangs_is_not_waited_for(drive_child, asks):
    drive_child({"uuid": "GPU-a", "hangs_in": "nvmlDeviceGetMemoryInfo"})

    answer = asks(timeout_seconds=1).ask(["GPU-a", "GPU-b"])

    assert answer == dict.fromkeys(["GPU-a", "GPU-b"], "a driver that does not respond")


def test_gpus_that_take_long_to_initialise_are_waited_for_once(
    drive_child, asks, tmp_path
):
    cold, calls = tmp_path / "cold", tmp_path / "calls"
    cold.touch()
    gpus = [
        {
            "uuid": f"GPU-{name}",
            "hangs_in": "nvmlDeviceGetHandleByIndex",
            "hangs_while": str(cold),
        }
        for name in "ab"
    ]
    drive_child(*gpus, calls_file=str(calls))
    one = asks(patience_seconds=0)

    # Whoever asks goes on meanwhile, and may be told to stop.
    assert one.ask(["GPU-a", "GPU-b"]) is None
    wait_until(lambda: calls.exists() and "nvmlInit" in calls.read_text(), "the driver")
    assert one.ask(["GPU-a"]) is None

    cold.unlink()
    assert wait_until(lambda: one.ask(["GPU-a"]) is not None, "the answer")
    assert wait_until(lambda: one.ask(["GPU-b"]) is not None, "the next one")
    assert calls.read_text().split().count("nvmlInit") == 1


def test_a_driver_that_answers_too_late_is_asked_by_another_helper(
    drive_child, asks, tmp_path, monkeypatch
):
    clock = PlayedTime(monkeypatch, "nbkit.telemetry.gpu_users")
    cold = tmp_path / "cold"
    cold.touch()
    drive_child(
        {
            "uuid": "GPU-a",
            "hangs_in": "nvmlDeviceGetHandleByIndex",
            "hangs_while": str(cold),
        }
    )
    one = asks(timeout_seconds=60, patience_seconds=0)
    assert one.ask(["GPU-a"]) is None
    clock.seconds += 60
    assert one.ask(["GPU-a"]) == {"GPU-a": "a driver that does not respond"}

    cold.unlink()
    wait_until(lambda: one.ask(["GPU-a"]) == {}, "an answer")


def test_a_gpu_that_is_lost_is_not_free(drive_child, asks):
    lost = pynvml.NVML_ERROR_GPU_IS_LOST
    drive_child({"uuid": "GPU-a", "errors": {"nvmlDeviceGetUtilizationRates": lost}})

    assert asks().ask(["GPU-a", "GPU-b"]) == {
        "GPU-a": "the driver (gpu lost; see dmesg)",
        "GPU-b": "the driver (GPU lost; see dmesg)",
    }


@pytest.fixture
def kernel(tmp_path):
    """Return the pid of a process that can be seen to use CUDA."""
    with cuda_process(tmp_path) as pid:
        yield pid


@pytest.mark.parametrize("is_host", [True, False])
def test_in_a_container_the_only_stranger_is_maybe_the_kernel(
    is_host, drive_child, asks, kernel, monkeypatch
):
    """The driver calls the kernel by the pid that it has outside."""
    monkeypatch.setattr("nbkit.telemetry.gpu_users.pids_are_the_hosts", lambda: is_host)
    # 1 GiB each: five are more than a twentieth, one alone only of a small instance.
    several = [NOBODY + n for n in range(5)]
    small = {"uuid": "MIG-b", "pids": [NOBODY], "memory_bytes": 10 * GIBIBYTE}
    drive_child({"uuid": "GPU-a", "pids": several}, {"uuid": "GPU-b", "migs": [small]})
    one = asks()

    used = one.ask(["GPU-a", "MIG-b"], kernel)

    assert "maybe this kernel" not in used["GPU-a"]
    assert ("maybe this kernel" in used["MIG-b"]) is not is_host
    assert one.unverified_devices == (set() if is_host else {"MIG-b"})


def test_a_kernel_that_never_used_cuda_is_no_stranger(drive_child, asks, monkeypatch):
    monkeypatch.setattr("nbkit.telemetry.gpu_users.pids_are_the_hosts", lambda: False)
    small = {"uuid": "MIG-b", "pids": [NOBODY], "memory_bytes": 10 * GIBIBYTE}
    drive_child({"uuid": "GPU-b", "migs": [small]})
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as kernel:
        one = asks()
        assert "MIG-b" in one.ask(["MIG-b"], kernel.pid)
        assert one.unverified_devices == set()
        kernel.communicate(b"\n")


@pytest.mark.parametrize("pid", [0, 2**32 - 1])
def test_a_hidden_pid_is_maybe_the_kernels_outside_of_containers_too(
    pid, drive_child, asks, kernel, monkeypatch
):
    monkeypatch.setattr("nbkit.telemetry.gpu_users.pids_are_the_hosts", lambda: True)
    drive_child({"uuid": "GPU-a", "pids": [pid], "process_bytes": 40 * GIBIBYTE})
    one = asks()

    used = one.ask(["GPU-a"], kernel)

    assert "whose id the driver hides with 40.0 GiB, maybe this kernel" in used["GPU-a"]
    assert one.unverified_devices == {"GPU-a"}


def test_a_question_that_fails_is_no_answer_that_nobody_is_there(monkeypatch, asks):
    monkeypatch.setattr("nbkit.telemetry.gpu_users.sys.executable", "/bin/false")

    assert "an unknown process" in asks().ask(["GPU-a"])["GPU-a"]


def test_the_sampler_reads_the_gpu_that_contains_an_instance(drive):
    drive(FakeGpu("GPU-a"), FakeGpu("GPU-b", migs=(FakeMig("MIG-b"),)))

    sampler = Sampler(gpu_uuids=["MIG-b"])
    assert [gpu.uuid for gpu in sampler.read().gpus] == ["GPU-b"]
