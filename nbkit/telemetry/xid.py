"""XID errors of the driver, received as NVML events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nbkit import clock
from nbkit.telemetry.binding import UNREADABLE
from nbkit.telemetry.gpu import Gpu, nvml_reason
from nbkit.telemetry.sample import Xid

_WAIT_MILLISECONDS = 1
"""Bindings differ in whether 0 means no wait or for ever."""

_MOST_AT_ONCE = 64
"""A GPU that fails may report without end."""

_ECHOES = {45, 154}
"""What the driver reports right after another error: a program was ended, and the GPU
must be reset."""


class XidEvents:
    """Listens for Xid errors of some GPUs; each knows its last one (`Gpu.xid`)."""

    def __init__(self, pynvml: Any, gpus: Sequence[Gpu]) -> None:
        self._pynvml = pynvml
        self._gpus: dict[bytes, Gpu] = {}
        self._events: Any = None
        self._reason: str | None = None
        critical = pynvml.nvmlEventTypeXidCriticalError
        for gpu in gpus:
            if gpu.error:
                continue
            try:
                if self._events is None:
                    self._events = pynvml.nvmlEventSetCreate()
                pynvml.nvmlDeviceRegisterEvents(gpu.handle, critical, self._events)
            except pynvml.NVMLError as error:
                gpu.set_xid_reason(nvml_reason(pynvml, error.value))
            else:
                # A lost GPU no longer tells its UUID; the handle stays what it was.
                self._gpus[bytes(gpu.handle)] = gpu

    def collect(self) -> None:
        """Note what was reported since the previous call."""
        if not self._gpus:
            return
        nvml = self._pynvml
        reporting: set[Gpu] = set()
        for _ in range(_MOST_AT_ONCE):
            try:
                event = nvml.nvmlEventSetWait_v2(self._events, _WAIT_MILLISECONDS)
            except nvml.NVMLError as error:
                silent = error.value == nvml.NVML_ERROR_TIMEOUT
                reason = None if silent else nvml_reason(nvml, error.value)
                if reason != self._reason:
                    self._reason = reason
                    for gpu in self._gpus.values():
                        gpu.set_xid_reason(reason)
                return
            try:
                gpu = self._gpus.get(bytes(event.device))
                code = int(event.eventData)
            except UNREADABLE:
                continue
            if gpu is None or (gpu in reporting and code in _ECHOES):
                continue
            reporting.add(gpu)
            gpu.xid = Xid(code, round(clock.now(), 3))

    def close(self) -> None:
        """Stop listening."""
        if self._events is not None:
            self._pynvml.nvmlEventSetFree(self._events)
            self._events = None
        self._gpus = {}
