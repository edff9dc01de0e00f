"""What is told of pairs of GPUs, and that only free ones are taken for it."""

from __future__ import annotations

import math

import pytest

from nbkit.launch.devices import gpu_pairs
from nbkit.launch.devices.choice import Candidate
from nbkit.launch.devices.claims import leases
from nbkit.launch.devices.pool import Claim, Lease
from tests.telemetry.conftest import drive, no_setting
from tests.telemetry.fake_nvml.fake_driver import GIBIBYTE, FakeGpu

__all__ = ["drive", "no_setting"]

GPUS = [Candidate(f"GPU-{n}", f"GPU {n + 4}", index=n + 4) for n in range(3)]
WORKS = {"without_p2p": False, "bytes_per_second": 20e9}
HANGS = {"without_p2p": False, "error": "it hangs: nothing within 6 s"}
WORKS_WITHOUT = {"without_p2p": True, "bytes_per_second": 9e9}
HANGS_WITHOUT = {"without_p2p": True, "error": "it hangs: nothing within 6 s"}


def judged(*rows, path="PHB"):
    paths = {("GPU-0", "GPU-1"): path}
    return list(gpu_pairs.judge_pairs(rows, GPUS, paths))


def test_pairs_that_work_are_one_line_and_a_slow_one_is_named():
    others = [{"pair": [0, 1], **WORKS}, {"pair": [0, 2], **WORKS}]

    [well] = judged(*others)
    [slow] = judged(*others, {"pair": [1, 2], **WORKS, "bytes_per_second": 2e9})

    assert (well.state, well.found) == ("ok", "2 pairs work, at 20.0 to 20.0 GB/s")
    assert slow.found == "3 pairs work, at 2.0 to 20.0 GB/s, GPU 5 and 6 slowest"


@pytest.mark.parametrize(
    ("said", "again", "path", "remedy"),
    [
        (HANGS, WORKS_WITHOUT, "PHB", "IOMMU or PCIe ACS is at fault: add iommu=pt"),
        (HANGS, WORKS_WITHOUT, "NVLINK", "nvidia-smi nvlink -e"),
        (HANGS, HANGS_WITHOUT, "PHB", "NCCL_DEBUG=INFO nbkit doctor --gpus"),
        (HANGS, None, "PHB", "NCCL_P2P_DISABLE=1"),
        (
            {**HANGS, "error": "Error while creating shared memory segment"},
            *(None, "PHB", "docker run --shm-size="),
        ),
        (
            {**HANGS, "error": "the process of one ended with -7"},
            *(WORKS_WITHOUT, "PHB", "docker run --shm-size="),
        ),
        (
            {**HANGS, "error": "the process of one ended with -9"},
            *(WORKS_WITHOUT, "PHB", "sudo dmesg"),
        ),
        (
            {**HANGS, "error": "CUDA error: uncorrectable ECC error encountered"},
            *(HANGS_WITHOUT, "PHB", "--gpu-reset"),
        ),
    ],
)
def test_a_pair_that_fails_is_told_what_is_at_fault(said, again, path, remedy):
    rows = [{"pair": [0, 1], **row} for row in (said, again) if row is not None]

    [finding] = judged(*rows, path=path)

    assert (finding.what, finding.state) == ("GPU 4 and 5", "failure")
    assert said["error"] in finding.found
    assert remedy in finding.remedy


def test_gpus_that_cannot_begin_and_pairs_without_a_turn_are_told():
    lost = {"gpu": 2, "error": "CUDA error: device kernel image is invalid"}

    gpu, late = judged(lost, {"not_reached": [[0, 1]]})

    assert (gpu.what, gpu.state) == ("GPU 6", "failure")
    assert (late.state, late.remedy) == ("warning", "nbkit doctor --gpus --limit 60")


def test_only_free_gpus_are_checked_and_are_held_meanwhile(
    drive, tmp_path, monkeypatch
):
    monkeypatch.setenv("NBKIT_POOL", str(tmp_path / "pool"))
    used = FakeGpu("GPU-3", pids=(1,), used_bytes=GIBIBYTE, memory_bytes=2 * GIBIBYTE)
    drive(FakeGpu("GPU-0"), FakeGpu("GPU-1"), FakeGpu("GPU-2"), used)
    request = {"kind": "cuda", "count": 1, "oversubscribe": False}
    claim = Claim.enter("a-run", {**request, "candidates": [("GPU-1", "GPU 1")]})
    claim.take_over()
    lease = claim.attempt()
    assert isinstance(lease, Lease)
    held = []

    def check(gpus, descriptors, deadline):
        held.append({gpu.name for gpu in gpus} & leases("cuda").keys())
        assert len(descriptors) == len(gpus)
        return [{"pair": [0, 1], **WORKS}]

    monkeypatch.setattr(gpu_pairs, "_check", check)

    shared, first, second, done = gpu_pairs.findings(math.inf)

    assert shared.what == "Shared memory"
    assert held == [{"GPU-0", "GPU-2"}]
    assert "a-run" in first.found
    assert "process 1" in second.found
    assert (first.what, second.what) == ("GPU 1", "GPU 3")
    assert done.state == "ok"
    assert leases("cuda") == {"GPU-1": ("a-run",)}
    lease.release()
    claim.close()


def test_a_torch_that_takes_all_the_time_to_import_is_told():
    rows = list(gpu_pairs._check(GPUS, (), deadline=0.0))

    [finding] = judged(*rows)

    assert finding.found.startswith("torch was not imported in time")
    assert (finding.state, finding.remedy) == (
        "warning",
        "nbkit doctor --gpus --limit 60",
    )


def test_a_machine_without_two_gpus_is_told_that_there_is_no_pair(drive, monkeypatch):
    drive(FakeGpu("GPU-0"), FakeGpu("GPU-1"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")

    [one] = gpu_pairs.findings(math.inf)

    assert "CUDA_VISIBLE_DEVICES='1' leaves: no pair" in one.found
    drive()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    [none] = gpu_pairs.findings(math.inf)
    assert (none.state, none.found) == ("info", "no whole GPU: no pair to check")
