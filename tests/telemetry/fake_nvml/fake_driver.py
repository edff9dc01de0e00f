"""A driver that does not exist, behind the functions of pynvml and below nothing else.

Structs, constants and exceptions are pynvml's own; only its functions are replaced, by
answers of a driver. Shared by tests in this process (`FakeDriver.install`) and by the
``pynvml.py`` beside this file, which a child process imports through PYTHONPATH.
"""

# ruff: noqa: N802  (the functions have the names of NVML's)

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GIBIBYTE = 2**30


@dataclass
class FakeMig:
    """One MIG instance."""

    uuid: str
    used_bytes: int = GIBIBYTE
    pids: tuple[int, ...] = ()
    memory_bytes: int = 80 * GIBIBYTE


@dataclass
class FakeGpu:
    """One GPU, and how it misbehaves."""

    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    used_bytes: int = 2 * GIBIBYTE
    pids: tuple[int, ...] = ()
    memory_bytes: int = 80 * GIBIBYTE
    process_bytes: int | None = GIBIBYTE
    """Memory of each process; None as below Windows."""
    pids_file: str = ""
    """A file with the pids in its words instead; it may change at any time."""
    reasons: int = 0
    migs: tuple[FakeMig | None, ...] | None = None
    """Slots for instances; None with MIG off."""
    errors: dict[str, int] = field(default_factory=dict)
    """NVML's error code by function; ``*`` is every function."""
    field_errors: dict[int, int] = field(default_factory=dict)
    """NVML's error code by number of a field counter."""
    hangs_in: str = ""
    """A function that never returns, or only when `hangs_while` is gone."""
    hangs_while: str = ""
    """A file."""
    gpm: bool = True
    """Whether the GPU has performance monitoring: Hopper and later."""
    ecc_errors: int = 0
    virtualization: int = 0
    """NVML's number of the way the GPU comes into this machine."""
    persistence: int = 1
    pcie_width: int = 16
    """Lanes in use, of 16."""
    remapped: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Rows remapped for correctable and uncorrectable errors, pending, failed."""
    power_limit_watts: int = 700
    """In force, of 700."""
    fabric: tuple[int, int] = (0, 0)
    """NVML's state and status of the fabric; 0 without NVSwitch."""
    p2p: tuple[int, int, int] = (0, 0, 0)
    """NVML's status of reading, writing and NVLink from this GPU to any other."""

    def __bytes__(self) -> bytes:
        """Return the handle's value, as a pointer of ctypes does."""
        return self.uuid.encode()


class FakeDriver:
    """Answers NVML's functions for some GPUs, and counts what it is asked."""

    def __init__(
        self,
        gpus: Iterable[FakeGpu] = (),
        *,
        missing: Iterable[str] = (),
        init_error: int | None = None,
        xids: Iterable[tuple[str, int]] = (),
        calls_file: str | None = None,
    ) -> None:
        self.gpus = list(gpus)
        self.xids = [(uuid, code) for uuid, code in xids]
        """UUID and code of errors that nobody heard of yet."""
        self._heard: set[str] = set()
        self.missing = set(missing)
        """Functions that this driver's library does not have."""
        self.init_error = init_error
        self.calls: Counter[str] = Counter()
        self.calls_file = calls_file
        """Where the name of every call is appended, for a test in another process."""

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> FakeDriver:
        """Return the driver that JSON values describe."""
        gpus = [FakeGpu(**gpu) for gpu in values.pop("gpus", [])]
        for gpu in gpus:
            slots: Any = gpu.migs
            if slots is not None:
                gpu.migs = tuple(None if it is None else FakeMig(**it) for it in slots)
        return cls(gpus, **values)

    def install(self, nvml: Any, setter: Callable[..., Any] = setattr) -> None:
        """Replace pynvml's functions by this driver's."""
        self._nvml = nvml
        names = ("NVML_FI_DEV_NVLINK_GET_SPEED", "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON")
        self._link_speeds = {getattr(nvml, name): 26_562 for name in names}
        for name in dir(self):
            if name.startswith("nvml"):
                setter(nvml, name, self._counted(name))

    def _counted(self, name: str) -> Callable[..., Any]:
        function = getattr(self, name)

        def call(*arguments: Any) -> Any:
            self.calls[name] += 1
            if self.calls_file is not None:
                with Path(self.calls_file).open("a") as file:
                    file.write(f"{name}\n")
            if name in self.missing:
                raise self._nvml.NVMLError(self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
            for argument in arguments:
                if isinstance(argument, FakeGpu):
                    self._misbehave(argument, name)
            return function(*arguments)

        return call

    def _misbehave(self, gpu: FakeGpu, name: str) -> None:
        if gpu.hangs_in == name:
            while not gpu.hangs_while or Path(gpu.hangs_while).exists():
                threading.Event().wait(0.02)
        code = gpu.errors.get(name, gpu.errors.get("*"))
        if code is not None:
            raise self._nvml.NVMLError(code)

    # The library

    def nvmlInit(self) -> None:
        if self.init_error is not None:
            raise self._nvml.NVMLError(self.init_error)

    def nvmlShutdown(self) -> None:
        pass

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.86.15"

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 12080

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        self._misbehave(self.gpus[index], "nvmlDeviceGetHandleByIndex")
        return self.gpus[index]

    # What does not change

    def nvmlDeviceGetUUID(self, device: FakeGpu | FakeMig) -> str:
        return device.uuid

    def nvmlDeviceGetName(self, device: FakeGpu | FakeMig) -> str:
        return device.name if isinstance(device, FakeGpu) else "MIG 1g.10gb"

    def nvmlDeviceGetCudaComputeCapability(self, gpu: FakeGpu) -> tuple[int, int]:
        return (9, 0)

    def nvmlDeviceGetMaxClockInfo(self, gpu: FakeGpu, kind: int) -> int:
        return {self._nvml.NVML_CLOCK_SM: 1980, self._nvml.NVML_CLOCK_MEM: 2619}[kind]

    def nvmlDeviceGetPciInfo(self, gpu: FakeGpu) -> Any:
        # A bus that no machine has, so that nothing is found in sysfs.
        return self._nvml.nvmlPciInfo_t(busId=b"0000FFFF:FE:1F.7")

    def nvmlDeviceGetMaxPcieLinkGeneration(self, gpu: FakeGpu) -> int:
        return 5

    def nvmlDeviceGetMaxPcieLinkWidth(self, gpu: FakeGpu) -> int:
        return 16

    def nvmlDeviceGetPersistenceMode(self, gpu: FakeGpu) -> int:
        return gpu.persistence

    def nvmlDeviceGetCurrPcieLinkWidth(self, gpu: FakeGpu) -> int:
        return gpu.pcie_width

    def nvmlDeviceGetRemappedRows(self, gpu: FakeGpu) -> tuple[int, int, int, int]:
        return gpu.remapped

    def nvmlDeviceGetPowerManagementDefaultLimit(self, gpu: FakeGpu) -> int:
        return 700_000

    def nvmlDeviceGetGpuFabricInfo(self, gpu: FakeGpu, info: Any) -> None:
        info._obj.state, info._obj.status = gpu.fabric

    def nvmlDeviceGetNvLinkState(self, gpu: FakeGpu, link: int) -> int:
        if link >= 18:
            raise self._nvml.NVMLError(self._nvml.NVML_ERROR_INVALID_ARGUMENT)
        return 1

    def nvmlDeviceGetNvLinkVersion(self, gpu: FakeGpu, link: int) -> int:
        return self._nvml.NVML_NVLINK_VERSION_4_0

    def nvmlDeviceGetP2PStatus(self, a: FakeGpu, b: FakeGpu, kind: int) -> int:
        return a.p2p[kind]

    def nvmlDeviceGetVirtualizationMode(self, gpu: FakeGpu) -> int:
        return gpu.virtualization

    def nvmlDeviceGetTopologyCommonAncestor(self, a: FakeGpu, b: FakeGpu) -> int:
        return self._nvml.NVML_TOPOLOGY_SYSTEM

    # What changes

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> Any:
        if gpu.migs is not None:
            raise self._nvml.NVMLError(self._nvml.NVML_ERROR_NOT_SUPPORTED)
        return self._nvml.c_nvmlUtilization_t(gpu=87, memory=41)

    def nvmlDeviceGetMemoryInfo(
        self, device: FakeGpu | FakeMig, version: int | None = None
    ) -> Any:
        total, reserved = device.memory_bytes, GIBIBYTE // 2
        if version is None:
            used = device.used_bytes + reserved
            return self._nvml.c_nvmlMemory_t(used=used, total=total, free=total - used)
        if "nvmlDeviceGetMemoryInfo_v2" in self.missing:
            raise self._nvml.NVMLError(self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return self._nvml.c_nvmlMemory_v2_t(
            version=version, used=device.used_bytes, reserved=reserved, total=total
        )

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> int:
        return 412_345

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: FakeGpu) -> int:
        return gpu.power_limit_watts * 1000

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: FakeGpu) -> int:
        return 1_000_500

    def nvmlDeviceGetTemperature(self, gpu: FakeGpu, sensor: int) -> int:
        return 61

    def nvmlDeviceGetTemperatureV(self, gpu: FakeGpu, sensor: int) -> int:
        return 61

    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, kind: int) -> int:
        return {self._nvml.NVML_CLOCK_SM: 1755, self._nvml.NVML_CLOCK_MEM: 2619}[kind]

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: FakeGpu) -> int:
        return gpu.reasons

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: FakeGpu) -> int:
        return gpu.reasons

    def nvmlDeviceGetFieldValues(
        self, gpu: FakeGpu, fields: list[int | tuple[int, int]]
    ) -> Any:
        nvml = self._nvml
        counts = {
            **self._link_speeds,
            nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES: 5_000,
            nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES: 6_000,
            nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX: 7,
            nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: 8,
        }
        values = (nvml.c_nvmlFieldValue_t * len(fields))()
        for value, asked in zip(values, fields, strict=True):
            number, scope = asked if isinstance(asked, tuple) else (asked, 0)
            value.fieldId, value.scopeId = number, scope
            value.nvmlReturn = gpu.field_errors.get(number, nvml.NVML_SUCCESS)
            value.value.ullVal = counts[number]
        return values

    def nvmlDeviceGetComputeRunningProcesses_v3(
        self, device: FakeGpu | FakeMig
    ) -> list[Any]:
        pids = device.pids
        if isinstance(device, FakeGpu) and device.pids_file:
            pids = tuple(map(int, Path(device.pids_file).read_text().split()))
        used = device.process_bytes if isinstance(device, FakeGpu) else GIBIBYTE
        return [
            self._nvml.nvmlFriendlyObject({"pid": pid, "usedGpuMemory": used})
            for pid in pids
        ]

    def nvmlDeviceGetComputeRunningProcesses_v2(
        self, device: FakeGpu | FakeMig
    ) -> list[Any]:
        return self.nvmlDeviceGetComputeRunningProcesses_v3(device)

    def nvmlDeviceGetPcieThroughput(self, gpu: FakeGpu, counter: int) -> int:
        threading.Event().wait(0.02)  # as its documentation says
        return 1_000

    # Details

    def nvmlDeviceGetTotalEccErrors(self, gpu: FakeGpu, kind: int, since: int) -> int:
        return gpu.ecc_errors

    def nvmlGpmQueryDeviceSupport(self, gpu: FakeGpu) -> Any:
        return self._nvml.c_nvmlGpmSupport_t(isSupportedDevice=gpu.gpm)

    def nvmlGpmSampleAlloc(self) -> Any:
        return self._nvml.c_nvmlGpmSample_t(self._nvml.struct_c_nvmlGpmSample_t())

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        pass

    def nvmlGpmSampleGet(self, gpu: FakeGpu, sample: Any) -> Any:
        return sample

    def nvmlGpmMetricsGet(self, asked: Any) -> Any:
        values = {
            self._nvml.NVML_GPM_METRIC_SM_UTIL: 71.25,
            self._nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: 33.0,
        }
        for metric in asked.metrics[: asked.numMetrics]:
            metric.value = values[metric.metricId]
        return asked

    def nvmlEventSetCreate(self) -> str:
        return "events"

    def nvmlDeviceRegisterEvents(self, gpu: FakeGpu, kinds: int, events: str) -> None:
        self._heard.add(gpu.uuid)

    def nvmlEventSetWait_v2(self, events: str, timeout_ms: int) -> Any:
        for uuid, code in self.xids:
            if uuid in self._heard:
                self.xids.remove((uuid, code))
                gpu = next(gpu for gpu in self.gpus if gpu.uuid == uuid)
                event = {"device": gpu, "eventType": 8, "eventData": code}
                return self._nvml.nvmlFriendlyObject(event)
        raise self._nvml.NVMLError(self._nvml.NVML_ERROR_TIMEOUT)

    def nvmlEventSetFree(self, events: str) -> None:
        self._heard.clear()

    # MIG

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> list[int]:
        return [int(gpu.migs is not None)] * 2

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: FakeGpu) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, slot: int) -> FakeMig:
        slots = dict(enumerate(gpu.migs or ()))
        instance = slots.get(slot)
        if instance is None:
            raise self._nvml.NVMLError(self._nvml.NVML_ERROR_NOT_FOUND)
        return instance
