"""Opening NVML, with a face for every way in which that fails; describing GPUs."""

from __future__ import annotations

import json
import sys

import pynvml
import pytest

from nbkit.errors import NvmlUnavailableError
from nbkit.telemetry.nvml import describe_gpus, open_nvml
from nbkit.telemetry.sample import GpuDevice
from tests.telemetry.fake_nvml.fake_driver import GIBIBYTE, FakeGpu


@pytest.mark.parametrize(
    "code",
    [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED],
)
def test_a_machine_without_an_nvidia_device_lacks_no_library(drive, code, pci):
    (pci / "vendor").write_text("0x8086\n")
    drive(init_error=code)

    with pytest.raises(NvmlUnavailableError, match="no GPU found") as caught:
        open_nvml()

    assert caught.value.reason == "no gpu"


@pytest.mark.parametrize(
    ("code", "reason", "remedy"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "no library", "--gpus all"),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "driver not loaded", "modprobe nvidia"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "version mismatch", "reboot"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "no permission", "administrator"),
        (pynvml.NVML_ERROR_GPU_IS_LOST, "gpu lost", "Xid"),
        (pynvml.NVML_ERROR_GPU_NOT_FOUND, "no gpu", "lspci"),
        (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, "driver too old", "install driver 450"),
        (pynvml.NVML_ERROR_UNKNOWN, "unknown error", "nvidia-smi"),
    ],
)
def test_each_failure_to_open_has_a_reason_and_a_remedy(
    drive, pci, code, reason, remedy
):
    drive(init_error=code)

    with pytest.raises(NvmlUnavailableError, match=remedy) as caught:
        open_nvml()

    assert caught.value.reason == reason
    assert f"({reason})" in str(caught.value)


def test_a_missing_binding_names_the_package_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)

    with pytest.raises(
        NvmlUnavailableError, match='pip install "nvidia-ml-py>='
    ) as caught:
        open_nvml()

    assert caught.value.reason == "no library"


def test_nvml_is_initialised_once_and_let_go(drive):
    driver = drive(FakeGpu("GPU-a"))

    with open_nvml() as nvml:
        for _ in range(3):
            nvml.read()
            nvml.devices()
        assert driver.calls["nvmlShutdown"] == 0

    assert (driver.calls["nvmlInit"], driver.calls["nvmlShutdown"]) == (1, 1)


def test_a_driver_that_refuses_each_end_is_let_go_all_the_same(drive):
    refused = {"nvmlGpmSampleFree", "nvmlEventSetFree", "nvmlShutdown"}
    driver = drive(FakeGpu("GPU-a"), FakeGpu("GPU-b"), missing=refused)
    nvml = open_nvml(detailed=True)
    nvml.read()

    nvml.close()

    # Two samples of each GPU.
    ends = [driver.calls[name] for name in sorted(refused)]
    assert ends == [1, 4, 1]


def test_nvml_that_fails_after_its_start_is_let_go(drive):
    driver = drive(missing={"nvmlDeviceGetCount"})

    with pytest.raises(NvmlUnavailableError):
        open_nvml()

    assert (driver.calls["nvmlInit"], driver.calls["nvmlShutdown"]) == (1, 1)


def test_a_driver_without_gpus_is_no_failure(drive):
    drive()

    with open_nvml() as nvml:
        assert (nvml.read(), nvml.devices(), nvml.topology()) == ((), (), [])


def test_a_gpu_is_described(drive):
    drive(FakeGpu("GPU-a"))

    with open_nvml() as nvml:
        assert nvml.devices() == (
            GpuDevice(
                index=0,
                uuid="GPU-a",
                name="NVIDIA H100 80GB HBM3",
                memory_total_bytes=80 * GIBIBYTE,
                compute_capability="9.0",
                power_limit_watts=700.0,
                sm_clock_max_mhz=1980,
                memory_clock_max_mhz=2619,
                pci_bus_id="0000FFFF:FE:1F.7",
                pcie_generation=5,
                pcie_width=16,
                nvlink_links=18,
                nvlink_version="4.0",
                nvlink_megabytes_per_second=26_562,
                mig_enabled=False,
                virtualization="none",
                persistence_mode=True,
            ),
        )


def test_topology_is_in_the_words_of_nvidia_smi(drive):
    unlinked = FakeGpu(
        "GPU-c",
        errors={"nvmlDeviceGetP2PStatus": pynvml.NVML_ERROR_NOT_SUPPORTED},
    )
    lost = FakeGpu(
        "GPU-d",
        errors={"nvmlDeviceGetHandleByIndex": pynvml.NVML_ERROR_GPU_IS_LOST},
    )
    drive(FakeGpu("GPU-a"), FakeGpu("GPU-b"), unlinked, lost)

    with open_nvml() as nvml:
        assert nvml.topology() == [
            ["X", "NVLINK", "SYS", None],
            ["NVLINK", "X", "SYS", None],
            ["SYS", "SYS", "X", None],
            [None, None, None, "X"],
        ]


def test_driver_and_gpus_are_described_for_a_record(drive):
    drive(FakeGpu("GPU-a"), FakeGpu("GPU-b"))

    description = json.loads(json.dumps(describe_gpus(), allow_nan=False))

    assert description["driver_version"] == "570.86.15"
    assert description["cuda_driver_version"] == "12.8"
    assert [device["uuid"] for device in description["devices"]] == ["GPU-a", "GPU-b"]
    assert description["topology"] == [["X", "NVLINK"], ["NVLINK", "X"]]
    assert description["gpus_unavailable"] is None


def test_without_a_driver_gpus_are_unknown_for_a_reason(pci, drive):
    drive(init_error=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    assert describe_gpus() == {
        "driver_version": None,
        "cuda_driver_version": None,
        "devices": None,
        "topology": None,
        "p2p": None,
        "gpus_unavailable": "driver not loaded",
    }
