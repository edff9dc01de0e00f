"""Messages for viewers: an inventory on change, and a small row of numbers.

Both are JSON values. The names of columns carry the unit; a number is rounded to what
can be distinguished, since the frame goes to every viewer every second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbkit.telemetry.control_groups import smallest_limit
from nbkit.telemetry.cpus import usable_cpus
from nbkit.telemetry.gpu_reader import GpuReading
from nbkit.telemetry.gpu_source import SourceSetting
from nbkit.telemetry.sample import (
    CLOCK_EVENT_WORDS,
    FIRST_READING,
    SLOWDOWN_REASONS,
    GpuDevice,
    GpuSample,
    HostSample,
)

_GPU_FIELDS = {
    "utilization_percent": "gpu_utilization_percent",
    "memory_used_mib": "memory_used_bytes",
    "memory_reserved_mib": "memory_reserved_bytes",
    "power_watts": "power_watts",
    "temperature_celsius": "temperature_celsius",
    "sm_clock_mhz": "sm_clock_mhz",
    "memory_clock_mhz": "memory_clock_mhz",
    "clock_events": "clock_event_reasons",
    "pcie_rx_mb_per_s": "pcie_rx_bytes",
    "pcie_tx_mb_per_s": "pcie_tx_bytes",
    "nvlink_rx_mb_per_s": "nvlink_rx_bytes",
    "nvlink_tx_mb_per_s": "nvlink_tx_bytes",
    "sm_activity_percent": "sm_activity_percent",
    "tensor_activity_percent": "tensor_activity_percent",
    "energy_joules": "energy_joules",
}
"""Field of a `GpuSample` by the column that shows it."""

_HOST_FIELDS = {
    "cpu_percent": "cpu_percent",
    "load_average_1_minute": "load_average_1_minute",
    "memory_used_mib": "memory_used_bytes",
    "disk_read_mb_per_s": "disk_read_bytes",
    "disk_write_mb_per_s": "disk_write_bytes",
    "net_rx_mb_per_s": "net_rx_bytes",
    "net_tx_mb_per_s": "net_tx_bytes",
}
"""Field of a `HostSample` by the column that shows it."""

GPU_COLUMNS, HOST_COLUMNS = tuple(_GPU_FIELDS), tuple(_HOST_FIELDS)
_COLUMN_OF_FIELD = {field: column for column, field in _GPU_FIELDS.items()}
_DIGITS = {"load_average_1_minute": 2, "energy_joules": None}
"""Decimal places that are not one."""

_SHARE_SECONDS = 30.0
"""Between two looks: each reads every mount of the host, and limits hardly change."""


@dataclass(frozen=True)
class HostShare:
    """CPUs and memory that this process may use."""

    cpus: float
    """CPUs that the process may keep busy, by affinity and control group."""
    memory_bytes: int | None
    """Memory limit of its control group, or None; may exceed the host's memory."""


class HostShareReader:
    """Reads at intervals what this process may use of the host."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._share: HostShare | None = None
        self._due = 0.0

    def read(self) -> HostShare:
        """Return the share, at most half a minute old."""
        now = time.monotonic()
        if self._share is None or now >= self._due:
            self._due = now + _SHARE_SECONDS
            memory_bytes = smallest_limit("memory", self._root)
            self._share = HostShare(usable_cpus(self._root), memory_bytes)
        return self._share


class Rates:
    """Rates of counters, each over the times of its own readings."""

    def __init__(self) -> None:
        self._before: dict[tuple[Any, str], tuple[float, int]] = {}

    def mb_per_s(
        self, owner: Any, name: str, t: float | None, count: int | None
    ) -> float | None:
        """Return a counter's growth in MB/s; None at first and where it fell."""
        if t is None or count is None:
            return None
        t_before, count_before = self._before.get((owner, name), (t, count))
        self._before[owner, name] = (t, count)
        if t <= t_before or count < count_before:
            return None
        return round((count - count_before) / (t - t_before) / 1e6, 1)


def inventory(
    reading: GpuReading,
    holders: Sequence[list[dict[str, Any]] | None],
    setting: SourceSetting,
    host: HostSample,
    share: HostShare,
) -> dict[str, Any]:
    """Return the facts that seldom change."""
    used, free = host.memory_used_bytes, host.memory_available_bytes
    total = None if used is None or free is None else used + free
    cpus, limit = os.cpu_count(), share.memory_bytes
    has_limit = limit is not None and (total is None or limit < total)
    is_replay = setting.kind != "nvml"
    return {
        "source": "replay" if is_replay else "nvml",
        "replay": setting.name or setting.kind if is_replay else None,
        "gpu_columns": GPU_COLUMNS,
        "host_columns": HOST_COLUMNS,
        "clock_event_words": CLOCK_EVENT_WORDS,
        "slowdown_words": [
            word for word in CLOCK_EVENT_WORDS if word in SLOWDOWN_REASONS
        ],
        "driver_version": reading.driver_version,
        "cuda_driver_version": reading.cuda_driver_version,
        "gpus": [
            _gpu(gpu, reading.devices.get(gpu.index, GpuDevice(gpu.index)), of_gpu)
            for gpu, of_gpu in zip(reading.gpus, holders, strict=True)
        ],
        "cpus": cpus,
        "usable_cpus": None if share.cpus == cpus else round(share.cpus, 2),
        "memory_total_mib": _mib(total),
        "memory_limit_mib": _mib(limit) if has_limit else None,
    }


def _gpu(
    gpu: GpuSample, device: GpuDevice, holders: list[dict[str, Any]] | None
) -> dict[str, Any]:
    instances = gpu.mig_instances
    return {
        "index": gpu.index,
        "uuid": gpu.uuid or device.uuid,
        "name": gpu.name or device.name,
        "error": gpu.error,
        "memory_total_mib": _mib(gpu.memory_total_bytes or device.memory_total_bytes),
        "memory_unified": gpu.memory_unified or device.memory_unified,
        "power_limit_watts": gpu.power_limit_watts or device.power_limit_watts,
        "sm_clock_max_mhz": device.sm_clock_max_mhz,
        "memory_clock_max_mhz": device.memory_clock_max_mhz,
        # MIG can be switched while NVML is open: the reading is newer.
        "mig_enabled": True if instances is not None else device.mig_enabled,
        "mig_instances": None
        if instances is None
        else [
            {
                "uuid": instance.uuid,
                "name": instance.name,
                "memory_total_mib": _mib(instance.memory_total_bytes),
            }
            for instance in instances
        ],
        "ecc_uncorrected_count": gpu.ecc_uncorrected_count,
        "xid": None if gpu.xid is None else gpu.xid.to_dict(),
        "unavailable": {
            _COLUMN_OF_FIELD.get(name, name): reason
            for name, reason in gpu.unavailable.items()
            if reason != FIRST_READING
        },
        "holders": holders,
    }


def gpu_row(gpu: GpuSample, rates: Rates) -> list[float | None] | None:
    """Return a GPU's values in the order of `GPU_COLUMNS`; None if it gives none."""
    if gpu.error:
        return None
    owner = gpu.uuid or gpu.index
    return [
        _cell(column, getattr(gpu, field), rates, owner, gpu.t)
        for column, field in _GPU_FIELDS.items()
    ]


def host_row(host: HostSample, t: float, rates: Rates) -> list[float | None]:
    """Return the host's values in the order of `HOST_COLUMNS`."""
    return [
        _cell(column, getattr(host, field), rates, "host", t)
        for column, field in _HOST_FIELDS.items()
    ]


def _cell(
    column: str, value: Any, rates: Rates, owner: str | int, t: float | None
) -> float | None:
    """Return a field in the unit of its column."""
    if column.endswith("_mb_per_s"):
        return rates.mb_per_s(owner, column, t, value)
    if column == "clock_events":
        return _clock_event_bits(value)
    if column.endswith("_mib"):
        return _mib(value)
    return None if value is None else round(value, _DIGITS.get(column, 1))


def memory_row(memory: Sequence[int | None]) -> list[int | None]:
    """Return bytes as mebibytes."""
    return [_mib(count) for count in memory]


def _mib(count: int | None) -> int | None:
    return None if count is None else round(count / 2**20)


_BIT_OF_WORD = {word: 1 << place for place, word in enumerate(CLOCK_EVENT_WORDS)}


def _clock_event_bits(words: Sequence[str] | None) -> int | None:
    """Return the bits of NVML again; a reason without a word keeps its own."""
    if words is None:
        return None
    bits = 0
    for word in words:
        bit = _BIT_OF_WORD.get(word)
        bits |= bit if bit is not None else int(word[len("unknown (") : -1], 16)
    return bits
