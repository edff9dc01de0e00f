"""What NVML says here against what nvidia-smi says; needs an NVIDIA GPU."""

from __future__ import annotations

import subprocess

import pytest

from nbkit.telemetry.nvml import open_nvml

pytestmark = pytest.mark.gpu

QUERY = "uuid,name,memory.total,compute_cap,pci.bus_id,driver_version"


def test_gpus_are_those_of_nvidia_smi():
    shown = subprocess.run(
        ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    with open_nvml() as nvml:
        described = [
            [
                gpu.uuid,
                gpu.name,
                str(gpu.memory_total_bytes // 2**20),
                gpu.compute_capability,
                gpu.pci_bus_id,
                nvml.driver_version,
            ]
            for gpu in nvml.devices()
        ]

    assert described == [line.split(", ") for line in shown.splitlines()]


def test_readings_are_possible_ones():
    with open_nvml() as nvml:
        before, after = nvml.read(), nvml.read()

    for first, second in zip(before, after, strict=True):
        assert second.error is None
        assert 0 < second.memory_used_bytes < second.memory_total_bytes
        assert 0 < second.power_watts < 2 * second.power_limit_watts
        assert second.energy_joules >= first.energy_joules
        assert 0 < second.temperature_celsius < 120
        assert second.sm_clock_mhz > 0
        assert set(second.unavailable.values()) <= {"not supported", "driver too old"}
