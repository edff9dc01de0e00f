"""GPUs as gauges on Jupyter's /metrics, if an administrator enabled them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from prometheus_client import Gauge

_GAUGES = {
    "utilization_percent": ("nbkit_gpu_utilization_percent", "Utilization", 1),
    "memory_used_mib": ("nbkit_gpu_memory_used_bytes", "Memory in use", 2**20),
    "power_watts": ("nbkit_gpu_power_watts", "Power draw", 1),
    "temperature_celsius": ("nbkit_gpu_temperature_celsius", "Temperature", 1),
}
_LABELS = ("gpu", "uuid")


class Gauges:
    """Sets the gauges; an unknown value has no line."""

    def __init__(self) -> None:
        self._gauges = {
            column: (Gauge(name, f"{text} of a GPU", _LABELS), factor)
            for column, (name, text, factor) in _GAUGES.items()
        }

    def set(self, gpu: Mapping[str, Any], values: Mapping[str, float | None]) -> None:
        """Set one GPU's gauges."""
        labels = (str(gpu["index"]), str(gpu["uuid"]))
        for column, (gauge, factor) in self._gauges.items():
            value = values.get(column)
            if value is None:
                with suppress(KeyError):  # older clients insist that it was there
                    gauge.remove(*labels)
            else:
                gauge.labels(*labels).set(value * factor)

    def clear(self) -> None:
        """Remove every line: what is no longer measured is not shown."""
        for gauge, _ in self._gauges.values():
            gauge.clear()
