"""Every call of NVML x every odd answer: one field is unknown, all others are right."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import psutil
import pynvml
import pytest

from nbkit.errors import NvmlUnavailableError
from nbkit.telemetry import gpm
from nbkit.telemetry.nvml import describe_gpus, open_nvml
from tests.telemetry.fake_nvml.fake_driver import FakeDriver, FakeGpu, FakeMig


def raises(error: Exception) -> Any:
    def call(*_: object, **__: object) -> Any:
        raise error

    return call


def gives(value: object) -> Any:
    return lambda *_, **__: value


NO_UTF8 = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")
ODD = {
    "not supported": raises(pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)),
    "unknown error": raises(pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)),
    "lost": raises(pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)),
    "no UTF-8": raises(NO_UTF8),
    "another binding": raises(AttributeError("no such function")),
    "another struct": raises(TypeError("wrong argument")),
    "0": gives(0),
    "huge": gives(2**70),
    "not a number": gives(float("nan")),
    "bytes": gives(b"\xff\xfe"),
    "nothing": gives(None),
    "an object": gives(object()),
    "a list": gives([]),
    "a total of 0": gives(pynvml.c_nvmlMemory_t(total=0, used=0, free=0)),
    "a hidden process": gives(
        [pynvml.nvmlFriendlyObject({"pid": 0, "usedGpuMemory": None})]
    ),
}
GIVEN = (
    *("huge", "not a number", "bytes", "an object", "a list"),
    *("a total of 0", "a hidden process"),
)
NO_MEMORY = ("not supported", "a total of 0")
"""Answers of a GPU that has none but the host's."""
IDENTITY = ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID")
CALLS = sorted(
    name
    for name in dir(FakeDriver)
    if name.startswith("nvml") and name not in ("nvmlInit", "nvmlDeviceGetCount")
)
_INSTANCES = {"mig_instances", "processes"}
_IDENTITY = {
    *("pcie_width", "power_limit_default_watts", "remap_pending", "remap_failed"),
}
"""What conditions do not tell of a GPU that does not say which it is."""
_ACTIVITY = {"sm_activity_percent", "tensor_activity_percent"}
FIELDS = {
    "nvmlDeviceGetClockInfo": {"memory_clock_mhz", "sm_clock_mhz"},
    "nvmlDeviceGetComputeRunningProcesses_v3": {"processes"},
    "nvmlDeviceGetCudaComputeCapability": {"compute_capability"},
    "nvmlDeviceGetCurrPcieLinkWidth": {"pcie_width"},
    "nvmlDeviceGetCurrentClocksEventReasons": {"clock_event_reasons"},
    "nvmlDeviceGetEnforcedPowerLimit": {"power_limit_watts"},
    "nvmlDeviceGetFieldValues": {
        *("nvlink_megabytes_per_second", "nvlink_rx_bytes", "nvlink_tx_bytes"),
        *("pcie_rx_bytes", "pcie_tx_bytes"),
    },
    "nvmlDeviceGetGpuFabricInfo": {"fabric"},
    "nvmlDeviceGetHandleByIndex": _IDENTITY,
    "nvmlDeviceGetMaxClockInfo": {"memory_clock_max_mhz", "sm_clock_max_mhz"},
    "nvmlDeviceGetMaxMigDeviceCount": _INSTANCES,
    "nvmlDeviceGetMaxPcieLinkGeneration": {"pcie_generation"},
    "nvmlDeviceGetMaxPcieLinkWidth": {"pcie_width"},
    "nvmlDeviceGetMemoryInfo": {
        *("memory_used_bytes", "memory_reserved_bytes", "memory_total_bytes"),
        *("memory_unified", "mig_instances"),
    },
    "nvmlDeviceGetMigDeviceHandleByIndex": _INSTANCES,
    "nvmlDeviceGetMigMode": {"mig_enabled", *_INSTANCES},
    "nvmlDeviceGetName": {"name", *_INSTANCES, *_IDENTITY},
    "nvmlDeviceGetNvLinkState": {"nvlink_links"},
    "nvmlDeviceGetNvLinkVersion": {"nvlink_version"},
    "nvmlDeviceGetPciInfo": {"pci_bus_id"},
    "nvmlDeviceGetPersistenceMode": {"persistence_mode"},
    "nvmlDeviceGetPowerManagementDefaultLimit": {"power_limit_default_watts"},
    "nvmlDeviceGetPowerUsage": {"power_watts"},
    "nvmlDeviceGetRemappedRows": {"remap_failed", "remap_pending"},
    "nvmlDeviceGetTemperatureV": {"temperature_celsius"},
    "nvmlDeviceGetTotalEccErrors": {"ecc_uncorrected_count"},
    "nvmlDeviceGetTotalEnergyConsumption": {"energy_joules"},
    "nvmlDeviceGetUUID": _IDENTITY,
    "nvmlDeviceGetUtilizationRates": {"gpu_utilization_percent"},
    "nvmlDeviceGetVirtualizationMode": {"virtualization"},
    "nvmlGpmMetricsGet": _ACTIVITY,
    "nvmlGpmQueryDeviceSupport": _ACTIVITY,
    "nvmlGpmSampleAlloc": _ACTIVITY,
    "nvmlGpmSampleGet": _ACTIVITY,
    "nvmlSystemGetCudaDriverVersion": {"cuda_driver_version"},
    "nvmlSystemGetDriverVersion": {"driver_version"},
}
"""What each call fills; all others fill nothing of these GPUs."""
_OTHERS = {"t", "unavailable"}
"""Fields of a reading that differ from one to the next, or tell of others."""


def everything() -> dict[str, Any]:
    """Return all that is read of the GPUs, by place."""
    with open_nvml(detailed=True, xid_events=True) as nvml:
        # Activity is that between two; what is lost in the first one has none then.
        nvml.read()
        nvml.read()
        readings = nvml.read()
        found: dict[str, Any] = {
            f"{kind} {number} {name}": value
            for kind, gpus in (
                ("reading", readings),
                ("device", nvml.devices()),
                ("condition", nvml.conditions()),
            )
            for number, gpu in enumerate(gpus)
            for name, value in asdict(gpu).items()
            if name not in _OTHERS
        }
        described = describe_gpus(nvml)
    return found | {
        name: described[name] for name in ("driver_version", "cuda_driver_version")
    }


@pytest.fixture
def driven(drive, monkeypatch):
    """Return the readings of a driver with two GPUs, one with an instance of MIG."""
    # Whether a second reading is a new one must not depend on when it comes.
    monkeypatch.setattr(gpm, "SHORTEST_SECONDS", 0.0)

    def make() -> dict[str, Any]:
        drive(
            FakeGpu("GPU-0", pids=(11,), ecc_errors=1, reasons=4),
            FakeGpu("GPU-1", migs=(FakeMig("MIG-0", pids=(12,)), None)),
        )
        return everything()

    return make


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("call", CALLS)
def test_an_odd_answer_leaves_its_own_field_unknown_and_no_other(
    driven, monkeypatch, call, odd
):
    right = driven()
    monkeypatch.setattr(pynvml, call, ODD[odd])

    found = everything()

    changed = {place for place in right if found[place] != right[place]}
    errors = {place for place in changed if place.endswith(" error")}
    lost = {place.removesuffix("error") for place in errors}
    # What cannot tell which GPU it is has an error of its own.
    assert bool(errors) <= (odd == "lost" or call in IDENTITY)
    changed -= {place for place in right if place.startswith(tuple(lost) or "-")}
    assert {place.rpartition(" ")[2] for place in changed} <= FIELDS.get(call, set())
    if call == "nvmlDeviceGetMemoryInfo" and odd in NO_MEMORY:
        shared = [found.pop(place) for place in changed if "memory_total" in place]
        assert shared == [psutil.virtual_memory().total] * 4
        changed = {place for place in changed & found.keys() if "unified" not in place}
    if odd != "0":
        told = [found[place] for place in changed if found[place] not in (None, False)]
        assert all(isinstance(value, tuple) for value in told)  # with unknown fields


@pytest.mark.parametrize("odd", [odd for odd in ODD if odd not in ("0", "nothing")])
@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetCount"])
def test_without_these_there_is_a_reason_and_no_gpu(drive, monkeypatch, call, odd):
    drive(FakeGpu("GPU-0"))
    monkeypatch.setattr(pynvml, call, ODD[odd])
    if call == "nvmlInit" and odd in GIVEN:
        everything()  # it returns nothing that is looked at
        return

    with pytest.raises(NvmlUnavailableError) as caught:
        everything()

    assert caught.value.reason in ("not supported", "unknown error", "gpu lost")


def test_a_binding_of_another_package_is_named_with_what_to_do(drive, monkeypatch):
    drive(FakeGpu("GPU-0"))
    monkeypatch.delattr(pynvml, "nvmlMemory_v2")

    with pytest.raises(NvmlUnavailableError, match="pip uninstall") as caught:
        open_nvml()

    assert caught.value.reason == "other pynvml"
    assert "it lacks nvmlMemory_v2" in str(caught.value)
    assert str(pynvml.__file__) in str(caught.value)
