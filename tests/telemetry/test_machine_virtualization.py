"""Whether a machine is virtual, how GPUs come into it and reach each other."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pynvml
import pytest

from nbkit.telemetry.machine import describe_machine
from nbkit.telemetry.nvml import open_nvml
from nbkit.telemetry.sampler import Sampler
from nbkit.telemetry.system import summarise_system
from tests.telemetry.fake_nvml.fake_driver import FakeGpu


@pytest.mark.parametrize(
    ("printed", "found"), [("vmware", "vmware"), ("none", "bare metal"), ("", None)]
)
def test_hypervisor_is_that_of_systemd(tmp_path, monkeypatch, printed, found):
    tool = tmp_path / "systemd-detect-virt"
    tool.write_text(f'#!/bin/sh\necho {printed}\n[ "{printed}" != none ]\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert describe_machine(gpus=False)["hypervisor"] == found


def test_virtual_machine_is_one_for_lscpu_too(tmp_path, monkeypatch):
    text = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
    monkeypatch.setenv("PATH", str(tmp_path))  # without systemd-detect-virt

    machine = describe_machine(gpus=False)

    is_guest = machine["virtual_machine"]
    assert is_guest == ("Hypervisor vendor" in text)
    assert machine["hypervisor"] == (None if is_guest else "bare metal")


@pytest.mark.parametrize(
    ("mode", "word"),
    [
        ("NONE", "none"),
        ("PASSTHROUGH", "passthrough"),
        ("VGPU", "vgpu"),
        ("HOST_VGPU", "host vgpu"),
    ],
)
def test_the_way_a_gpu_comes_into_a_machine_is_described(drive, mode, word):
    number = getattr(pynvml, f"NVML_GPU_VIRTUALIZATION_MODE_{mode}")
    drive(FakeGpu("GPU-a", virtualization=number))

    with open_nvml() as nvml:
        [device] = nvml.devices()

    assert device.virtualization == word


def test_the_speed_of_nvlink_is_asked_in_the_form_of_older_drivers_too(drive):
    unknown = {pynvml.NVML_FI_DEV_NVLINK_GET_SPEED: pynvml.NVML_ERROR_INVALID_ARGUMENT}
    drive(FakeGpu("GPU-a", field_errors=unknown))

    with open_nvml() as nvml:
        [device] = nvml.devices()

    assert device.nvlink_megabytes_per_second == 26_562


def test_which_gpus_reach_each_other_is_in_the_words_of_nvidia_smi(drive):
    chipset, topology = 1, 3
    lost = {"nvmlDeviceGetHandleByIndex": pynvml.NVML_ERROR_GPU_IS_LOST}
    drive(
        FakeGpu("GPU-a"),
        FakeGpu("GPU-b", p2p=(chipset, topology, 5)),
        FakeGpu("GPU-c", errors=lost),
    )

    with open_nvml() as nvml:
        p2p = nvml.p2p()

    assert p2p == {
        "read": [["X", "OK", None], ["CNS", "X", None], [None, None, "X"]],
        "write": [["X", "OK", None], ["TNS", "X", None], [None, None, "X"]],
        "nvlink": [["X", "OK", None], ["NS", "X", None], [None, None, "X"]],
    }


def test_the_record_of_a_run_has_ways_and_links(drive, tmp_path: Path):
    drive(FakeGpu("GPU-a", virtualization=1), FakeGpu("GPU-b"))
    path = tmp_path / "host.jsonl"
    sampler = Sampler()
    rows = [sampler.header(), {"kind": "sample", **sampler.read().to_dict()}]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    system = summarise_system(path, ())

    assert system["p2p"]["write"] == [["X", "OK"], ["OK", "X"]]
    assert [gpu["virtualization"] for gpu in system["devices"]] == [
        "passthrough",
        "none",
    ]
