"""Which devices a run asks for: one a rank, none that it may not see."""

from __future__ import annotations

import os

import pynvml
import pytest

from nbkit.errors import DeviceError, NvmlUnavailableError
from nbkit.launch.devices.choice import Candidate, request_devices, visible_candidates
from nbkit.telemetry.sample import GpuDevice
from tests.telemetry.fake_nvml.fake_driver import FakeDriver, FakeGpu, FakeMig

GPUS = [GpuDevice(index=n, uuid=f"GPU-{n}{n}{n}{n}-x", name="H200") for n in range(4)]
DIVIDED = [
    GpuDevice(0, "GPU-0000-x", "A100", mig_enabled=True),
    GpuDevice(1, "GPU-1111-x", "A100", mig_enabled=False),
]
INSTANCES = {
    "GPU-0000-x": [
        Candidate(f"MIG-{letter * 4}", f"GPU 0 MIG {n}", is_instance=True)
        for n, letter in enumerate("ab")
    ]
}


def _lost(uuid):
    errors = {"nvmlDeviceGetHandleByIndex": pynvml.NVML_ERROR_GPU_IS_LOST}
    return FakeGpu(uuid, errors=errors)


A, B, C = (FakeGpu(f"GPU-{letter}-x") for letter in "abc")
LOST_B = _lost("GPU-b-x")
EMPTY_MIG = FakeGpu("GPU-m-x", migs=())
TWO_MIGS = FakeGpu("GPU-d-x", migs=(FakeMig("MIG-aaaa"), FakeMig("MIG-bbbb")))


@pytest.fixture
def request_on(monkeypatch, small):
    """Return what asks for devices on a machine with some GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def ask(*gpus, setting=None, device="cuda", **fields):
        FakeDriver(gpus).install(pynvml, monkeypatch.setattr)
        if setting is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
        return request_devices(small(device=device, oversubscribe=False, **fields))

    return ask


@pytest.mark.parametrize(
    ("gpus", "fields", "names"),
    [
        ((A, B, C), {}, "abc"),
        ((A, B, C), {"gpus": 2, "devices": (2, "GPU-b-x")}, "cb"),
        ((A, LOST_B, C), {"gpus": 2}, "ac"),
        ((A, LOST_B, C), {"setting": "0,1,2"}, "ac"),
    ],
)
def test_request_devices(gpus, fields, names, request_on):
    wanted = request_on(*gpus, **fields)

    assert [name for name, _ in wanted.candidates] == [f"GPU-{n}-x" for n in names]


@pytest.mark.parametrize(
    ("gpus", "fields", "words"),
    [
        ((A, B), {"gpus": 3}, "gpus=3 exceeds the 2 visible GPUs. Use gpus=2"),
        ((A, B), {"gpus": 2, "devices": (0, 9)}, "9 is not a visible GPU. Visible: 0"),
        ((A, B), {"gpus": 2, "devices": (1, "GPU-b-x")}, "lists a GPU twice"),
        (
            (A, LOST_B),
            {"gpus": 2},
            r"exceeds the 1 visible GPU; GPU 1 cannot be read \(gpu lost",
        ),
        ((A, LOST_B), {"devices": (1,)}, r"1 is not .* GPU 1 cannot be read \(gpu l"),
        ((LOST_B,), {"device": "auto"}, "GPU 0 cannot be read .* device='cpu'"),
        ((EMPTY_MIG,), {"device": "auto"}, "no instance: create an .* device='cpu'"),
        ((EMPTY_MIG,), {"device": "cuda"}, "no instance: create an .* device='cpu'"),
        ((TWO_MIGS,), {"gpus": 2}, r"MIG instances \(2\) need gpus=1"),
        (
            (TWO_MIGS,),
            {"gpus": 2, "devices": ("MIG-aaaa", "MIG-bbbb")},
            "several devices cannot use MIG instances .MIG-a",
        ),
    ],
)
def test_request_devices_refusals(gpus, fields, words, request_on):
    with pytest.raises(DeviceError, match=words):
        request_on(*gpus, **fields)


def test_request_devices_broken_gpus(request_on):
    with pytest.raises(DeviceError) as error:
        request_on(A, LOST_B, EMPTY_MIG, FakeGpu("GPU-e-x", migs=(None,)), gpus=2)

    message = str(error.value)
    assert "GPU 1 cannot be read (gpu lost): check dmesg" in message
    assert (
        " and GPU 3 is in MIG mode and has no instance: create an instance" in message
    )
    assert message.count("reset the GPU") == message.count("create an instance") == 1


@pytest.mark.parametrize("device", ["auto", "cuda"])
@pytest.mark.parametrize(
    ("setting", "entry"),
    [
        ("9", "9"),
        ("0,2", "2"),
        ("GPU-b,GPU-zzzz", "GPU-zzzz"),
        ("1,MIG-c", "MIG-c"),
        ('"0"', '"0"'),
        ("cuda:0", "cuda:0"),
        ("0,all", "all"),
    ],
)
def test_request_devices_unknown_setting(setting, entry, device, request_on):
    with pytest.raises(DeviceError) as error:
        request_on(A, B, setting=setting, device=device)

    known = f"{entry!r} is not a GPU of this host, which has GPUs 0 to 1 (nvidia-smi -"
    assert f"CUDA_VISIBLE_DEVICES={setting!r}: {known}L). Correct" in str(error.value)


@pytest.mark.parametrize("device", ["auto", "cuda"])
@pytest.mark.parametrize("setting", ["cuda:0", "0,all", "GPU 0"])
def test_request_devices_meaningless_setting_without_gpus(
    setting, device, small, monkeypatch
):
    def open_nvml():
        message = "no driver"
        raise NvmlUnavailableError(message)

    monkeypatch.setattr("nbkit.telemetry.nvml.open_nvml", open_nvml)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)

    with pytest.raises(
        DeviceError, match=f"CUDA_VISIBLE_DEVICES='{setting}': .* not a number"
    ):
        request_devices(small(device=device))


@pytest.mark.parametrize("setting", ["", "-1", "NoDevFiles", "none", "void", "-1,0"])
def test_request_devices_setting_that_hides_all(setting, request_on):
    assert request_on(A, setting=setting, device="auto").kind == "cpu"


@pytest.mark.parametrize(
    ("setting", "indices"),
    [
        (None, [0, 1, 2, 3]),
        ("2,0", [2, 0]),
        ("GPU-3333-x", [3]),
        ("GPU-11", [1]),
        ("1,7,2", [1]),
    ],
)
def test_visible_candidates_as_in_cuda(setting, indices):
    assert [one.index for one in visible_candidates(GPUS, {}, setting)] == indices


@pytest.mark.parametrize(
    ("setting", "left"),
    [
        (None, ["MIG-aaaa", "MIG-bbbb", "GPU-1111-x"]),
        ("0", ["MIG-aaaa", "MIG-bbbb"]),
        ("MIG-bbbb", ["MIG-bbbb"]),
        ("1", ["GPU-1111-x"]),
    ],
)
def test_visible_candidates_of_a_divided_gpu(setting, left):
    found = visible_candidates(DIVIDED, INSTANCES, setting)

    assert [one.name for one in found] == left


@pytest.mark.parametrize(
    ("threads", "count", "cpus_per_rank"),
    [(None, 8, 4), ("1", 2, 1), ("3", 6, 3), ("64", 9, 64)],
)
def test_request_devices_cpus(threads, count, cpus_per_rank, small, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if threads is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    monkeypatch.setattr("nbkit.launch.devices.choice.usable_cpus", lambda: 9.5)

    wanted = request_devices(small(gpus=2, device="cpu"))

    assert (wanted.device_type, wanted.count) == ("cpu", count)
    assert wanted.cpus_per_rank == cpus_per_rank
    assert all(name.startswith("cpu-") for name, _ in wanted.candidates)


@pytest.mark.parametrize(("uid", "cpus"), [(0, [0, 1]), (1, [2, 3])])
def test_request_devices_cpu_quota(uid, cpus, small, monkeypatch):
    monkeypatch.setattr("nbkit.launch.devices.choice.usable_cpus", lambda: 2.0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    monkeypatch.setattr(os, "getuid", lambda: uid)

    wanted = request_devices(small(gpus=1, device="cpu"))

    assert [name for name, _ in wanted.candidates] == [f"cpu-{cpu}" for cpu in cpus]
    # A rank's own run holds these.
    monkeypatch.setenv("NBKIT_RUN_ID", "a")
    assert len(request_devices(small(gpus=1, device="cpu")).candidates) == 4


def test_request_devices_more_ranks_than_cpus(small):
    wanted = request_devices(small(gpus=99, device="cpu", oversubscribe=True))

    # More than there are: the lease says that they are shared.
    assert wanted.count == 99 > len(wanted.candidates)


def test_request_devices_replayed(small, monkeypatch):
    monkeypatch.delenv("NBKIT_GPU_SOURCE", raising=False)
    config = small(gpus=2, device="replay", devices=(5, 1))
    with pytest.raises(DeviceError, match="requires a trace in NBKIT_GPU_SOURCE"):
        request_devices(config)
    monkeypatch.setenv("NBKIT_GPU_SOURCE", "replay:eight-gpus")

    wanted = request_devices(config)

    assert (wanted.kind, wanted.device_type) == ("replay", "cpu")
    assert [label for _, label in wanted.candidates] == ["GPU 5", "GPU 1"]
