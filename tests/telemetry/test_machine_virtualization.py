"""Whether a machine is virtual, how GPUs come into it and reach each other."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pynvml
import pytest

from nbkit.telemetry import virtualization
from nbkit.telemetry.machine import describe_machine
from nbkit.telemetry.nvml import open_nvml
from nbkit.telemetry.sampler import Sampler
from nbkit.telemetry.system import summarise_system
from nbkit.telemetry.virtualization import detect_hypervisor
from tests.telemetry.fake_nvml.fake_driver import FakeGpu

GUEST = "fpu vme sse2 hypervisor avx2"
METAL = "fpu vme sse2 avx2"
DMI = "sys/class/dmi/id"
CLOCKS = "sys/devices/system/clocksource/clocksource0/available_clocksource"


@pytest.mark.parametrize(
    ("flags", "files", "found"),
    [
        (GUEST, {f"{DMI}/sys_vendor": "VMware, Inc."}, "vmware"),
        (GUEST, {f"{DMI}/product_name": "Virtual Machine"}, "microsoft"),
        (GUEST, {f"{DMI}/sys_vendor": "Amazon EC2"}, "amazon"),
        (METAL, {f"{DMI}/sys_vendor": "Amazon EC2"}, "bare metal"),
        (GUEST, {"sys/hypervisor/type": "xen"}, "xen"),
        (GUEST, {f"{DMI}/sys_vendor": "QEMU"}, "qemu"),
        (GUEST, {f"{DMI}/sys_vendor": "QEMU", CLOCKS: "tsc kvm-clock"}, "kvm"),
        (GUEST, {CLOCKS: "tsc kvm-clock acpi_pm"}, "kvm"),
        (METAL, {f"{DMI}/sys_vendor": "Dell Inc.", CLOCKS: "tsc hpet"}, "bare metal"),
        # A hypervisor that hides from the processor's flags.
        (METAL, {f"{DMI}/sys_vendor": "VMware, Inc."}, "vmware"),
        (GUEST, {f"{DMI}/sys_vendor": "Somebody's Cloud"}, None),
        (None, {}, None),
    ],
)
def test_a_hypervisor_is_known_by_its_signs(tmp_path, flags, files, found):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    assert detect_hypervisor(flags, tmp_path) == found


def test_a_product_whose_name_is_not_utf_8_hides_no_hypervisor(tmp_path):
    folder = tmp_path / DMI
    folder.mkdir(parents=True)
    (folder / "product_name").write_bytes(b"Ger\xe4t")
    (folder / "sys_vendor").write_text("VMware, Inc.")

    assert detect_hypervisor(GUEST, tmp_path) == "vmware"


@pytest.mark.parametrize(
    ("printed", "found"), [("vmware", "vmware"), ("none", "bare metal"), ("", None)]
)
def test_systemd_is_believed_where_it_is_installed(
    tmp_path, monkeypatch, printed, found
):
    tool = tmp_path / "systemd-detect-virt"
    tool.write_text(f'#!/bin/sh\necho {printed}\n[ "{printed}" != none ]\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(virtualization, "_firmware", lambda root: None)
    monkeypatch.setattr(virtualization, "_clock", lambda root: None)
    monkeypatch.setattr(virtualization, "_read", lambda path: None)

    assert detect_hypervisor(GUEST) == found


def test_a_virtual_machine_is_one_for_lscpu_too():
    text = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout

    hypervisor = describe_machine(gpus=False)["hypervisor"]

    named = hypervisor not in (None, "bare metal")
    assert named == ("Hypervisor vendor" in text)


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
    with Sampler() as sampler:
        rows = [sampler.header(), {"kind": "sample", **sampler.read().to_dict()}]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))

    system = summarise_system(path, ())

    assert system["p2p"]["write"] == [["X", "OK"], ["OK", "X"]]
    assert [gpu["virtualization"] for gpu in system["devices"]] == [
        "passthrough",
        "none",
    ]
