"""NVML queries of a GPU: their variants, and parsing of the values.

Drivers differ in what they know, so each question has its forms, newest first. A
binding or driver that changes a name, a unit or a struct concerns this file alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nbkit.telemetry.sample import CLOCK_EVENT_WORDS, GpuProcess

_ALL_NVLINKS = 0xFFFFFFFF
"""Scope of an NVLink field that sums over all links (``UINT_MAX`` in nvml.h)."""

_VIRTUALIZATION_WORDS = {
    "NVML_GPU_VIRTUALIZATION_MODE_NONE": "none",
    "NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH": "passthrough",
    "NVML_GPU_VIRTUALIZATION_MODE_VGPU": "vgpu",
    "NVML_GPU_VIRTUALIZATION_MODE_HOST_VGPU": "host vgpu",
    "NVML_GPU_VIRTUALIZATION_MODE_HOST_VSGA": "host vsga",
}
_LARGEST = 2**63
"""In any unit; a driver that does not know a number may say the largest there is."""
_LARGEST_PID = 2**31 - 1
"""Of ``pid_t``."""
_NVLINK_VERSIONS = ("1_0", "2_0", "2_2", "3_0", "3_1", "4_0", "5_0", "6_0")


class Query(NamedTuple):
    """A question to NVML: the fields it fills, how to ask, how to read the answer."""

    fields: tuple[str, ...]
    forms: tuple[tuple[Any, ...], ...]
    """Function name and arguments after the handle; newest form first."""
    values: Callable[[Any], Sequence[Any]]
    """The answer as values of the fields, in units of the fields."""


class Questions(NamedTuple):
    """All queries for a GPU."""

    name: Query
    sample: tuple[Query, ...]
    counters: tuple[Query, ...]
    detail: tuple[Query, ...]
    memory: Query
    processes: Query
    mig_enabled: Query
    mig_slots: Query
    device: tuple[Query, ...]


@functools.cache
def questions_for(pynvml: Any) -> Questions:
    """Return the queries for a GPU, each with its variants."""
    power_limit = _single(
        "power_limit_watts", ("nvmlDeviceGetEnforcedPowerLimit",), value=_thousandth
    )
    total_memory = _single(
        "memory_total_bytes",
        ("nvmlDeviceGetMemoryInfo",),
        value=lambda info: _memory(pynvml, info)[2],
    )
    return Questions(
        name=_single("name", ("nvmlDeviceGetName",), value=_text),
        sample=(*_gauges(pynvml), power_limit),
        counters=_counters(pynvml),
        detail=(
            _single(
                "ecc_uncorrected_count",
                (
                    "nvmlDeviceGetTotalEccErrors",
                    pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                    pynvml.NVML_VOLATILE_ECC,
                ),
            ),
        ),
        memory=Query(
            ("memory_used_bytes", "memory_reserved_bytes", "memory_total_bytes"),
            (
                # Since driver 510: tells the driver's own share apart.
                ("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2),
                ("nvmlDeviceGetMemoryInfo",),
            ),
            functools.partial(_memory, pynvml),
        ),
        processes=_single(
            "processes",
            ("nvmlDeviceGetComputeRunningProcesses_v3",),
            ("nvmlDeviceGetComputeRunningProcesses_v2",),
            value=lambda processes: tuple(
                GpuProcess(_pid(process.pid), check_reading(process.usedGpuMemory))
                for process in processes
            ),
        ),
        mig_enabled=_single(
            "mig_enabled",
            ("nvmlDeviceGetMigMode",),
            value=lambda modes: modes[0] == pynvml.NVML_DEVICE_MIG_ENABLE,
        ),
        mig_slots=_single("mig_slots", ("nvmlDeviceGetMaxMigDeviceCount",)),
        device=(*_facts(pynvml), power_limit, total_memory),
    )


def _gauges(pynvml: Any) -> tuple[Query, ...]:
    """Return the questions whose answers change from second to second."""
    temperature = pynvml.NVML_TEMPERATURE_GPU
    return (
        _single(
            "gpu_utilization_percent",
            ("nvmlDeviceGetUtilizationRates",),
            value=lambda rates: rates.gpu,
        ),
        _single("power_watts", ("nvmlDeviceGetPowerUsage",), value=_thousandth),
        _single(
            "temperature_celsius",
            ("nvmlDeviceGetTemperatureV", temperature),
            ("nvmlDeviceGetTemperature", temperature),
        ),
        _single("sm_clock_mhz", ("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM)),
        _single("memory_clock_mhz", ("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM)),
        _single(
            "clock_event_reasons",
            ("nvmlDeviceGetCurrentClocksEventReasons",),
            ("nvmlDeviceGetCurrentClocksThrottleReasons",),  # before driver 535
            value=_clock_event_words,
        ),
    )


def _counters(pynvml: Any) -> tuple[Query, ...]:
    """Return the questions whose answers only grow."""
    # PCIe bytes come from field counters (since driver 555), which answer immediately:
    # ``nvmlDeviceGetPcieThroughput`` measures for 20 ms in each call.
    return (
        _single(
            "energy_joules",
            ("nvmlDeviceGetTotalEnergyConsumption",),
            value=_thousandth,
        ),
        _field_counters(
            pynvml,
            ("pcie_rx_bytes", pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES),
            ("pcie_tx_bytes", pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES),
        ),
        _field_counters(
            pynvml,
            ("nvlink_rx_bytes", pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX),
            ("nvlink_tx_bytes", pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX),
            scope=_ALL_NVLINKS,
            bytes_per_count=1024,
        ),
    )


def _facts(pynvml: Any) -> tuple[Query, ...]:
    """Return the questions whose answers stay while the driver is loaded."""
    max_clock = "nvmlDeviceGetMaxClockInfo"
    return (
        _single(
            "compute_capability",
            ("nvmlDeviceGetCudaComputeCapability",),
            value=_version,
        ),
        _single("sm_clock_max_mhz", (max_clock, pynvml.NVML_CLOCK_SM)),
        _single("memory_clock_max_mhz", (max_clock, pynvml.NVML_CLOCK_MEM)),
        _single(
            "pci_bus_id",
            ("nvmlDeviceGetPciInfo",),
            value=lambda info: _text(info.busId),
        ),
        _single("pcie_generation", ("nvmlDeviceGetMaxPcieLinkGeneration",)),
        _single("pcie_width", ("nvmlDeviceGetMaxPcieLinkWidth",)),
        _single(
            "persistence_mode",
            ("nvmlDeviceGetPersistenceMode",),
            value={
                pynvml.NVML_FEATURE_ENABLED: True,
                pynvml.NVML_FEATURE_DISABLED: False,
            }.get,
        ),
        _single(
            "virtualization",
            ("nvmlDeviceGetVirtualizationMode",),
            value=_words_of(pynvml, _VIRTUALIZATION_WORDS).get,
        ),
        *_nvlink_facts(pynvml),
    )


def _nvlink_facts(pynvml: Any) -> tuple[Query, ...]:
    """Return the questions about the GPU's first NVLink; all of a GPU are alike."""
    versions = {
        f"NVML_NVLINK_VERSION_{version}": version.replace("_", ".")
        for version in _NVLINK_VERSIONS
    }
    fields = "nvmlDeviceGetFieldValues"
    return (
        _single(
            "nvlink_version",
            ("nvmlDeviceGetNvLinkVersion", 0),
            value=_words_of(pynvml, versions).get,
        ),
        _single(
            "nvlink_megabytes_per_second",
            (fields, [(pynvml.NVML_FI_DEV_NVLINK_GET_SPEED, 0)]),
            (fields, [pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON]),  # before Hopper
            # A link that is down has the speed 0.
            value=lambda answers: _counts(pynvml, answers)[0] or None,
        ),
    )


def _words_of(pynvml: Any, words: dict[str, str]) -> dict[int, str]:
    """Return words by the value of the constant; an older binding lacks some."""
    return {
        getattr(pynvml, name): word
        for name, word in words.items()
        if hasattr(pynvml, name)
    }


def check_reading(value: Any) -> Any:
    """Return a value if it is valid for a field."""
    if isinstance(value, int | float):
        if not -_LARGEST <= value <= _LARGEST:  # nor NaN
            message = f"{value!r:.40} is not a reading"
            raise ValueError(message)
    elif value is not None and not isinstance(value, str | tuple):
        message = f"a {type(value).__name__} is not a reading"
        raise TypeError(message)
    return value


def _memory(pynvml: Any, info: Any) -> tuple[Any, ...]:
    """Return used, reserved and total memory; a total of 0 says that it has none."""
    if info.total == 0:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return info.used, getattr(info, "reserved", None), info.total


def _pid(value: Any) -> int | None:
    """Return a process id; None for a number that no process can have."""
    # Drivers that hide ids tell 0, or the largest number of their type.
    return value if 0 < int(check_reading(value)) <= _LARGEST_PID else None


def _text(value: Any) -> str:
    text = value.decode() if isinstance(value, bytes) else value
    if not isinstance(text, str):
        message = f"a {type(text).__name__} is not text"
        raise TypeError(message)
    return text


def _single(
    field: str, *forms: tuple[Any, ...], value: Callable[[Any], Any] = lambda x: x
) -> Query:
    """Return a query that fills one field."""
    return Query((field,), forms, lambda answer: (value(answer),))


def _thousandth(number: float) -> float:
    """Return watts for milliwatts, joules for millijoules."""
    return check_reading(number) / 1000


def _version(numbers: tuple[int, int]) -> str:
    if not isinstance(numbers, tuple):
        message = f"a {type(numbers).__name__} is not a version"
        raise TypeError(message)
    return "{:d}.{:d}".format(*numbers)


def _field_counters(
    pynvml: Any,
    *counters: tuple[str, int],
    scope: int = 0,
    bytes_per_count: int = 1,
) -> Query:
    """Return a query for field counters."""
    return Query(
        tuple(name for name, _ in counters),
        (("nvmlDeviceGetFieldValues", [(number, scope) for _, number in counters]),),
        lambda answers: [count * bytes_per_count for count in _counts(pynvml, answers)],
    )


def _counts(pynvml: Any, answers: Any) -> list[int]:
    """Return the numbers of field values, each of which has its own error code."""
    for answer in answers:
        code = answer.nvmlReturn
        if code == pynvml.NVML_ERROR_INVALID_ARGUMENT:
            # Older drivers say so of a field that they do not know.
            code = pynvml.NVML_ERROR_NOT_SUPPORTED
        if code != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(code)
    # Whatever the field's own type, the rest of the union is zero.
    return [answer.value.ullVal for answer in answers]


def _clock_event_words(bits: int) -> tuple[str, ...]:
    check_reading(bits)
    words_by_bit = [(1 << bit, word) for bit, word in enumerate(CLOCK_EVENT_WORDS)]
    words = tuple(word for bit, word in words_by_bit if bits & bit)
    unknown = bits & ~sum(bit for bit, _ in words_by_bit)
    return (*words, f"unknown ({unknown:#x})") if unknown else words
