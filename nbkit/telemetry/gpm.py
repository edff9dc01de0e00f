"""Utilization of parts of a GPU: NVML's GPU performance monitoring (GPM).

Utilization says that some kernel ran; GPM says how many multiprocessors worked and for
how much of the time the tensor cores did. It needs Hopper or later, and driver 525.

References
----------
https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmFunctions.html
"""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import Any

GPM_FIELDS = ("sm_activity_percent", "tensor_activity_percent")

SHORTEST_SECONDS = 0.1
"""Metrics of a shorter time are not valid on Hopper (NVIDIA/DCGM issue 310)."""


class Gpm:
    """Activity of one GPU between two readings."""

    def __init__(self, pynvml: Any) -> None:
        self._pynvml = pynvml
        self._metrics = (
            pynvml.NVML_GPM_METRIC_SM_UTIL,
            pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
        )
        self._supported = False
        self._before: Any = None
        self._spare: Any = None
        self._read_at = -math.inf
        self._values: dict[str, float | None] | None = None

    def read(self, handle: Any) -> dict[str, float | None] | None:
        """Return the activity since the previous call; None in the first one."""
        nvml = self._pynvml
        if not self._supported:
            if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
            self._spare = nvml.nvmlGpmSampleAlloc()
            self._before = None
            self._supported = True
        now = time.monotonic()
        if now - self._read_at < SHORTEST_SECONDS:
            return self._values
        after = nvml.nvmlGpmSampleGet(handle, self._spare)
        self._read_at = now
        if self._before is None:
            self._before, self._spare = after, nvml.nvmlGpmSampleAlloc()
            return None
        before, self._before, self._spare = self._before, after, self._before
        self._values = self._read_metrics(before, after)
        return self._values

    def close(self) -> None:
        """Free the memory of NVML."""
        samples = (self._before, self._spare)
        self._before = self._spare = None
        for sample in filter(None, samples):
            with suppress(self._pynvml.NVMLError):  # of a lost GPU; the other is tried
                self._pynvml.nvmlGpmSampleFree(sample)

    def _read_metrics(self, before: Any, after: Any) -> dict[str, float | None]:
        nvml = self._pynvml
        request = nvml.c_nvmlGpmMetricsGet_t(
            version=nvml.NVML_GPM_METRICS_GET_VERSION,
            numMetrics=len(self._metrics),
            sample1=before,
            sample2=after,
        )
        for place, metric in enumerate(self._metrics):
            request.metrics[place].metricId = metric
        nvml.nvmlGpmMetricsGet(request)
        values: dict[str, float | None] = {}
        for place, field in enumerate(GPM_FIELDS):
            metric = request.metrics[place]
            valid = metric.nvmlReturn == nvml.NVML_SUCCESS
            # A GPU that slept meanwhile divides nothing by nothing.
            valid = valid and math.isfinite(metric.value)
            values[field] = round(metric.value, 1) if valid else None
        return values
