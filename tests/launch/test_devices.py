"""Which devices a run asks for: one a rank, none that it may not see."""

from __future__ import annotations

import pynvml
import pytest

from nbkit.errors import DeviceError
from nbkit.launch.devices.choice import (
    Candidate,
    _choose,
    request_devices,
    visible_candidates,
)
from nbkit.telemetry.sample import GpuDevice
from tests.telemetry.fake_nvml.fake_driver import FakeDriver, FakeGpu

_LOST = pynvml.NVML_ERROR_GPU_IS_LOST

GPUS = [GpuDevice(index=n, uuid=f"GPU-{n}{n}{n}{n}-x", name="H200") for n in range(4)]
WHOLE = visible_candidates(GPUS, {}, None)
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


def names(config, gpus=WHOLE):
    return [one.name for one in _choose(config, gpus)]


def test_any_visible_gpu_will_do_in_order(small):
    config = small(device="cuda", oversubscribe=False)

    assert names(config) == [gpu.uuid for gpu in GPUS]


def test_particular_devices_are_taken_by_index_or_uuid(small):
    config = small(
        gpus=2, device="cuda", devices=(3, "GPU-1111-x"), oversubscribe=False
    )

    assert names(config) == ["GPU-3333-x", "GPU-1111-x"]


def test_more_ranks_than_gpus_is_an_error_with_the_count(small):
    config = small(device="cuda", gpus=5, oversubscribe=False)

    with pytest.raises(DeviceError, match=r"gpus=5, but 4 visible GPUs .* use gpus=4"):
        names(config)


def test_an_unknown_device_is_named_with_what_there_is(small):
    config = small(gpus=2, device="cuda", devices=(0, 9), oversubscribe=False)

    with pytest.raises(DeviceError, match=r"9 is not a visible GPU; visible: 0"):
        names(config)


@pytest.mark.parametrize(
    ("setting", "indices"),
    [
        (None, [0, 1, 2, 3]),
        ("2,0", [2, 0]),
        ("GPU-3333-x", [3]),
        ("GPU-11", [1]),
        ("", []),
        ("-1", []),
        ("1,7,2", [1]),
        ("NoDevFiles", []),
    ],
)
def test_cuda_visible_devices_is_honoured_as_cuda_does(setting, indices):
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
def test_a_divided_gpu_offers_the_instances_that_may_be_used(setting, left):
    found = visible_candidates(DIVIDED, INSTANCES, setting)

    assert [one.name for one in found] == left


def test_a_run_of_one_rank_may_take_a_mig_instance(small):
    config = small(device="cuda", gpus=1, devices=("MIG-bbbb",))

    assert names(config, visible_candidates(DIVIDED, INSTANCES, None)) == ["MIG-bbbb"]


@pytest.mark.parametrize("fields", [{}, {"devices": ("MIG-aaaa", "MIG-bbbb")}])
def test_several_ranks_never_meet_over_mig_instances(small, fields):
    config = small(gpus=2, device="cuda", oversubscribe=False, **fields)

    with pytest.raises(DeviceError, match="of one rank"):
        names(config, visible_candidates(DIVIDED, INSTANCES, None))


def test_cpus_are_shared_between_ranks_and_all_that_are_used_are_wanted(
    small, monkeypatch
):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("nbkit.launch.devices.choice.usable_cpus", lambda: 9.5)

    wanted = request_devices(small(gpus=2, device="cpu"))

    assert (wanted.kind, wanted.device_type, wanted.count) == ("cpu", "cpu", 8)
    assert wanted.cpus_per_rank == 4
    assert all(name.startswith("cpu-") for name, _ in wanted.candidates)


@pytest.mark.parametrize(("threads", "count"), [("1", 2), ("3", 6), ("64", 9)])
def test_ranks_that_are_told_how_many_threads_to_use_want_as_many_cpus(
    threads, count, small, monkeypatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    monkeypatch.setattr("nbkit.launch.devices.choice.usable_cpus", lambda: 9.5)

    assert request_devices(small(gpus=2, device="cpu")).count == count


def test_a_gpu_that_is_named_twice_is_an_error(small):
    config = small(
        gpus=2, device="cuda", devices=(1, "GPU-1111-x"), oversubscribe=False
    )

    with pytest.raises(DeviceError, match="names a GPU twice"):
        names(config)


def test_replayed_gpus_need_a_replay(small, monkeypatch):
    monkeypatch.delenv("NBKIT_GPU_SOURCE", raising=False)

    with pytest.raises(DeviceError, match="NBKIT_GPU_SOURCE names no trace"):
        request_devices(small(device="replay"))


def test_a_run_on_replayed_gpus_computes_on_cpus(small, monkeypatch):
    monkeypatch.setenv("NBKIT_GPU_SOURCE", "replay:eight-gpus")

    wanted = request_devices(small(gpus=2, device="replay", devices=(5, 1)))

    assert (wanted.kind, wanted.device_type) == ("replay", "cpu")
    assert [label for _, label in wanted.candidates] == ["GPU 5", "GPU 1"]


@pytest.fixture
def machine(monkeypatch):
    """Return a maker of drivers behind NVML, and of CUDA_VISIBLE_DEVICES."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def make(*gpus, setting=None):
        FakeDriver(gpus).install(pynvml, monkeypatch.setattr)
        if setting is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)

    return make


@pytest.mark.parametrize("device", ["auto", "cuda"])
@pytest.mark.parametrize(
    ("setting", "entry"),
    [
        ("9", "9"),
        ("0,2", "2"),
        ("GPU-b,GPU-zzzz", "GPU-zzzz"),
        ("1,MIG-c", "MIG-c"),
        *((words, words) for words in ('"0"', "all", "cuda:0", "[0]", "0;1", "0 1")),
        *((words, words) for words in ("gpu-a", "None", "-2", "true", "GPU 0")),
        ("0,all", "all"),
    ],
)
def test_a_setting_that_names_no_gpu_of_this_machine_is_an_error(
    setting, entry, device, machine, small
):
    machine(FakeGpu("GPU-a-x"), FakeGpu("GPU-b-x"), setting=setting)

    with pytest.raises(DeviceError) as error:
        request_devices(small(device=device, gpus=1))

    assert f"CUDA_VISIBLE_DEVICES={setting!r}: there is no GPU {entry} here" in str(
        error.value
    )
    assert "but GPUs 0 to 1 (nvidia-smi -L); correct or unset it" in str(error.value)


@pytest.mark.parametrize("setting", ["", "-1", "NoDevFiles", "none", "void", "-1,0"])
def test_a_setting_that_hides_all_gpus_leaves_the_cpus(setting, machine, small):
    machine(FakeGpu("GPU-a-x"), setting=setting)

    assert request_devices(small(device="auto", gpus=1)).kind == "cpu"


def _lost(uuid):
    return FakeGpu(uuid, errors={"nvmlDeviceGetHandleByIndex": _LOST})


def test_a_gpu_that_is_lost_is_named_where_one_is_missing(machine, small):
    machine(FakeGpu("GPU-a-x"), _lost("GPU-b-x"), FakeGpu("GPU-c-x"))

    wanted = request_devices(small(device="cuda", gpus=2, oversubscribe=False))
    assert [name for name, _ in wanted.candidates] == ["GPU-a-x", "GPU-c-x"]
    with pytest.raises(DeviceError, match=r"2 visible .* GPU 1 cannot be read \(gpu l"):
        request_devices(small(device="cuda", gpus=3, oversubscribe=False))
    with pytest.raises(DeviceError, match=r"1 is not .* GPU 1 cannot be read \(gpu l"):
        request_devices(small(device="cuda", gpus=1, devices=(1,)))


def test_a_machine_whose_gpus_are_all_lost_does_not_compute_on_cpus(machine, small):
    machine(_lost("GPU-a-x"))

    with pytest.raises(DeviceError, match=r"GPU 0 cannot be read .* device='cpu'"):
        request_devices(small(device="auto", gpus=1))


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_a_gpu_in_mig_mode_without_an_instance_does_not_compute_on_cpus(
    device, machine, small
):
    machine(FakeGpu("GPU-a-x", migs=()))

    with pytest.raises(DeviceError) as error:
        request_devices(small(device=device, gpus=1))

    assert str(error.value) == (
        f"device={device!r}, but there is no GPU to use: GPU 0 is in MIG mode and has "
        "no instance: create one (nvidia-smi mig -cgi) or disable MIG (nvidia-smi -mig "
        "0), or set device='cpu'."
    )


def test_gpus_that_cannot_be_used_are_named_with_the_remedy_of_each(machine, small):
    empty = FakeGpu("GPU-c-x", migs=(None,)), FakeGpu("GPU-d-x", migs=())
    machine(FakeGpu("GPU-a-x"), _lost("GPU-b-x"), *empty)

    assert len(request_devices(small(device="cuda", gpus=1)).candidates) == 1
    with pytest.raises(DeviceError) as error:
        request_devices(small(device="cuda", gpus=2, oversubscribe=False))
    told = str(error.value)
    assert "GPU 1 cannot be read (gpu lost): look for an Xid" in told
    assert "; GPU 2 is in MIG mode and has no instance" in told
    assert " and GPU 3 is in MIG mode and has no instance: create one" in told
    assert told.count("reset the GPU") == told.count("create one") == 1


def test_a_setting_that_hides_a_gpu_in_mig_mode_says_nothing_of_it(machine, small):
    machine(FakeGpu("GPU-a-x", migs=()), FakeGpu("GPU-b-x"), setting="1")

    with pytest.raises(DeviceError) as error:
        request_devices(small(device="cuda", gpus=2, oversubscribe=False))
    assert "MIG" not in str(error.value)


def test_a_setting_goes_on_behind_a_gpu_that_is_lost(machine, small):
    machine(FakeGpu("GPU-a-x"), _lost("GPU-b-x"), FakeGpu("GPU-c-x"), setting="0,1,2")

    wanted = request_devices(small(device="cuda", gpus=1))
    assert [name for name, _ in wanted.candidates] == ["GPU-a-x", "GPU-c-x"]
