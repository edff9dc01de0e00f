"""Condition of a GPU: throttling, damage, settings; read through NVML once."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nbkit.telemetry.binding import UNREADABLE
from nbkit.telemetry.gpu import Gpu, nvml_reason
from nbkit.telemetry.questions import check_reading


@dataclass(frozen=True)
class GpuCondition:
    """Condition of a GPU, in the terms of nvidia-smi; None if unknown."""

    pcie_width: int | None = None
    """Lanes in use (``pcie.link.width.current``)."""
    remap_pending: bool | None = None
    """Whether defective memory will be remapped at the next reset
    (``remapped_rows.pending``, ``retired_pages.pending``)."""
    remap_failed: bool | None = None
    """Whether remapping of defective memory failed (``remapped_rows.failure``)."""
    power_limit_default_watts: float | None = None
    """Default power limit (``power.default_limit``)."""
    fabric: str | None = None
    """State of its fabric initialization (``fabric.state``): ``not started``, ``in
    progress``, ``completed``, or why it failed; None without NVSwitch."""


def read_condition(pynvml: Any, gpu: Gpu) -> GpuCondition:
    """Return the condition of a GPU, unknown if the GPU is lost."""
    if gpu.error:
        return GpuCondition()

    def ask(read: Callable[[], Any]) -> Any:
        try:
            # A wrong type or size is not an answer either.
            return check_reading(read())
        except (pynvml.NVMLError, *UNREADABLE):
            return None

    handle = gpu.handle
    rows = ask(lambda: tuple(pynvml.nvmlDeviceGetRemappedRows(handle)))
    if rows is not None and len(rows) == 4:
        pending, failed = bool(rows[2]), bool(rows[3])
    else:  # before Ampere whole pages are retired
        pages = ask(lambda: pynvml.nvmlDeviceGetRetiredPagesPendingStatus(handle))
        pending = None if pages is None else pages == pynvml.NVML_FEATURE_ENABLED
        failed = None
    default = ask(lambda: pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle))
    return GpuCondition(
        pcie_width=ask(lambda: pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
        remap_pending=pending,
        remap_failed=failed,
        power_limit_default_watts=None if default is None else default / 1000,
        fabric=ask(lambda: _fabric(pynvml, handle)),
    )


def _fabric(pynvml: Any, handle: Any) -> str | None:
    info = pynvml.c_nvmlGpuFabricInfo_t()
    pynvml.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(info))
    if info.state == pynvml.NVML_GPU_FABRIC_STATE_COMPLETED:
        if info.status == pynvml.NVML_SUCCESS:
            return "completed"
        return nvml_reason(pynvml, info.status)
    words = {
        pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED: "not started",
        pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS: "in progress",
    }
    return words.get(info.state)
