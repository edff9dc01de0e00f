"""One rank a device; none that another rank holds."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nbkit.errors import DeviceError
from nbkit.launch.devices import _held_devices, _visible, choose_gpus, place
from nbkit.telemetry.sample import GpuDevice
from tests.waiting import wait_until

GPUS = [GpuDevice(index=n, uuid=f"GPU-{n}{n}{n}{n}-x", name="H200") for n in range(4)]


def test_the_first_free_gpus_are_taken_in_order(small):
    config = small(device="cuda", oversubscribe=False)

    assert choose_gpus(config, GPUS, held={"GPU-0000-x"}) == [
        "GPU-1111-x",
        "GPU-2222-x",
    ]


def test_particular_devices_are_taken_by_index_or_uuid(small):
    config = small(device="cuda", devices=(3, "GPU-1111-x"), oversubscribe=False)

    assert choose_gpus(config, GPUS, held=set()) == ["GPU-3333-x", "GPU-1111-x"]


def test_a_held_device_is_refused_by_name(small):
    config = small(device="cuda", devices=(0, 1), oversubscribe=False)

    with pytest.raises(DeviceError, match=r"GPU-0000-x is held by a rank of another"):
        choose_gpus(config, GPUS, held={"GPU-0000-x"})


def test_a_held_device_is_shared_only_when_asked_for(small):
    config = small(device="cuda", devices=(0, 1), oversubscribe=True)

    chosen = choose_gpus(config, GPUS, held={"GPU-0000-x"})

    assert chosen == ["GPU-0000-x", "GPU-1111-x"]


def test_too_few_free_gpus_is_an_error_with_the_count(small):
    config = small(device="cuda", gpus=4, oversubscribe=False)

    with pytest.raises(DeviceError, match=r"gpus=4, but 3 of 4 .* use gpus=3"):
        choose_gpus(config, GPUS, held={"GPU-0000-x"})


def test_an_unknown_device_is_named_with_what_there_is(small):
    config = small(device="cuda", devices=(0, 9), oversubscribe=False)

    with pytest.raises(DeviceError, match=r"9 is not a visible GPU; visible: 0"):
        choose_gpus(config, GPUS, held=set())


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
    assert [gpu.index for gpu in _visible(GPUS, setting)] == indices


def test_a_living_rank_of_any_run_holds_its_device():
    code = "print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"NBKIT_RUN_ID": "another", "NBKIT_DEVICES": "GPU-x,GPU-held"},
    ) as rank:
        assert rank.stdout is not None
        rank.stdout.readline()
        wait_until(lambda: "GPU-held" in _held_devices(), "the rank to be seen")
        rank.kill()
    assert "GPU-held" not in _held_devices()


def test_mig_instances_are_refused_rather_than_ignored():
    with pytest.raises(DeviceError, match="MIG instances cannot be used yet"):
        _visible(GPUS, "MIG-5f0e")


def test_cpus_are_shared_between_ranks(small, monkeypatch):
    monkeypatch.setattr("nbkit.launch.devices.usable_cpus", lambda: 9.5)

    placement = place(small(gpus=2, device="cpu"))

    assert placement.device_type == "cpu"
    assert placement.cpus_per_rank == 4
    assert placement.devices == ()
