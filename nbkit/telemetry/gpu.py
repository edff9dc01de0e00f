"""One GPU of NVML: its queries, and those that it does not support.

Of a question's forms the first that the driver knows is kept. An answer of "not
supported" is kept too, so that it is not asked again every second.
"""

from __future__ import annotations

import functools
import time
from typing import Any, Self

import psutil

from nbkit import clock
from nbkit.telemetry.binding import UNREADABLE
from nbkit.telemetry.gpm import GPM_FIELDS, Gpm
from nbkit.telemetry.questions import Query, check_reading, questions_for
from nbkit.telemetry.sample import (
    FIRST_READING,
    GpuDevice,
    GpuProcess,
    GpuSample,
    MigSample,
    Xid,
)
from nbkit.telemetry.topology import numa_node_of

_REASONS = {
    "NVML_ERROR_UNINITIALIZED": "NVML not initialised",
    "NVML_ERROR_INVALID_ARGUMENT": "not supported",
    "NVML_ERROR_NOT_SUPPORTED": "not supported",
    "NVML_ERROR_NO_PERMISSION": "no permission",
    "NVML_ERROR_DRIVER_NOT_LOADED": "driver not loaded",
    "NVML_ERROR_TIMEOUT": "timeout",
    "NVML_ERROR_LIBRARY_NOT_FOUND": "no library",
    "NVML_ERROR_FUNCTION_NOT_FOUND": "driver too old",
    "NVML_ERROR_GPU_IS_LOST": "gpu lost",
    "NVML_ERROR_RESET_REQUIRED": "gpu needs a reset",
    "NVML_ERROR_OPERATING_SYSTEM": "blocked by the system",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "version mismatch",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH": "driver too old",
    "NVML_ERROR_DEPRECATED": "no longer supported",
    "NVML_ERROR_GPU_NOT_FOUND": "no gpu",
}

_SAME_FOREVER = (
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
    "NVML_ERROR_DEPRECATED",
)
"""Answers that stay while the driver is loaded; all others may be different soon."""

_WHOLE_GPU = ("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED")
"""Answers that speak of the GPU, not of the field."""

_NOT_SUPPORTED = "not supported"
_UNREADABLE = "unreadable answer"
_MOST_MIG_SLOTS = 64

_DETAIL_SECONDS = 30.0
"""How often the details that hardly ever change are asked for."""


def nvml_reason(pynvml: Any, code: int) -> str:
    """Return an NVML error code in words, such as ``driver not loaded``."""
    for name, words in _REASONS.items():
        if getattr(pynvml, name, None) == code:
            return words
    return str(pynvml.NVMLError(code)).lower()


class _WholeGpuError(Exception):
    """The GPU does not answer at all; the text says why."""


class Gpu:
    """One GPU; remembers the queries that it does not support."""

    def __init__(self, pynvml: Any, index: int, *, detailed: bool = False) -> None:
        self._pynvml = pynvml
        self._questions = questions_for(pynvml)
        self._next_form: dict[str, int] = {}
        self._reasons: dict[str, str] = {}
        self.index = index
        self.handle: Any = None
        self.uuid: str | None = None
        self.name: str | None = None
        self.error: str | None = None
        self.xid: Xid | None = None
        self._detailed = detailed
        self._gpm = Gpm(pynvml) if detailed else None
        self._slow_values: dict[str, Any] = {}
        self._slow_due = 0.0
        self._was_mig: bool | None = None

    @classmethod
    def find(cls, pynvml: Any, index: int, *, detailed: bool = False) -> Self:
        """Return the GPU of an NVML index; with an error if it does not answer."""
        gpu = cls(pynvml, index, detailed=detailed)
        try:
            gpu.handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = pynvml.nvmlDeviceGetUUID(gpu.handle)
            if not isinstance(uuid, str):
                raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
            gpu.uuid = uuid
            gpu.name = gpu._query(gpu._questions.name, gpu.handle)["name"]
        except pynvml.NVMLError as error:
            gpu.error = nvml_reason(pynvml, error.value)
        except _WholeGpuError as error:
            gpu.error = str(error)
        return gpu

    def read(self) -> GpuSample:
        """Return one reading; of a lost GPU, only its error."""
        identity = (self.index, self.uuid, self.name)
        if self.error:
            return GpuSample(*identity, error=self.error, xid=self.xid)
        values: dict[str, Any] = {}
        try:
            is_mig = self._mig_enabled()
            if is_mig not in (None, self._was_mig):
                self._was_mig = is_mig
                self._next_form.clear()  # under MIG a GPU tells less
                self._slow_due = 0.0
                if self._detailed and self._gpm is None:
                    self._gpm = Gpm(self._pynvml)
            for query in self._questions.sample:
                values |= self._query(query, self.handle)
            memory = self._query(self._questions.memory, self.handle)
            values |= memory | self._unified_memory(memory)
            for query in self._questions.counters:
                values |= self._query(query, self.handle)
            t = round(clock.now(), 3)
            if is_mig:
                values |= self._read_mig()
            else:
                values |= self._query(self._questions.processes, self.handle)
            values |= self._read_details()
        except _WholeGpuError as error:
            return GpuSample(*identity, error=str(error), xid=self.xid)
        unavailable = {
            name: self._reasons.get(name, "unknown")
            for name, value in values.items()
            if value is None
        }
        if "xid" in self._reasons:
            unavailable["xid"] = self._reasons["xid"]
        values |= {"xid": self.xid, "t": t, "unavailable": unavailable}
        return GpuSample(*identity, **values)

    def close(self) -> None:
        """Release the resources of detailed readings."""
        if self._gpm is not None:
            self._gpm.close()

    def set_xid_reason(self, reason: str | None) -> None:
        """Set why the driver does not report this GPU's errors; None if it does."""
        if reason is None:
            self._reasons.pop("xid", None)
        else:
            self._reasons["xid"] = reason

    def describe(self) -> GpuDevice:
        """Return the properties that are constant while the driver is loaded."""
        identity = (self.index, self.uuid, self.name)
        if self.error:
            return GpuDevice(*identity, error=self.error)
        values: dict[str, Any] = {}
        try:
            for query in self._questions.device:
                values |= self._query(query, self.handle)
            values |= self._unified_memory(values)
            values["mig_enabled"] = self._mig_enabled()
            values["nvlink_links"] = self._count_nvlinks()
        except _WholeGpuError as error:
            return GpuDevice(*identity, error=str(error))
        numa_node = numa_node_of(values["pci_bus_id"])
        return GpuDevice(*identity, **values, numa_node=numa_node)

    def _unified_memory(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the host's memory where NVML says that the GPU has none itself."""
        total = "memory_total_bytes"
        if values[total] is not None or self._reasons.get(total) != _NOT_SUPPORTED:
            return {}
        total_bytes = psutil.virtual_memory().total
        return {total: total_bytes, "memory_unified": True}

    def _read_details(self) -> dict[str, Any]:
        if not self._detailed:
            return {}
        now = time.monotonic()
        if now >= self._slow_due:
            self._slow_due = now + _DETAIL_SECONDS
            for query in self._questions.detail:
                self._slow_values |= self._query(query, self.handle)
        return self._slow_values | self._read_gpm()

    def _read_gpm(self) -> dict[str, Any]:
        unknown: dict[str, Any] = dict.fromkeys(GPM_FIELDS)
        if self._gpm is None:
            return unknown
        try:
            values = self._gpm.read(self.handle)
        except UNREADABLE:
            reason = _UNREADABLE
        except self._pynvml.NVMLError as error:
            reason = self._reason_unless_lost(error)
            if error.value in _codes(self._pynvml, _SAME_FOREVER):
                self._gpm = None
        else:
            reason = FIRST_READING
            if values is not None:
                return values
        self._reasons |= dict.fromkeys(GPM_FIELDS, reason)
        return unknown

    def _query(self, query: Query, handle: Any, prefix: str = "") -> dict[str, Any]:
        """Return the query's fields: None, and the reason kept, where unavailable."""
        key = prefix + query.fields[0]
        for form in range(self._next_form.get(key, 0), len(query.forms)):
            function, *arguments = query.forms[form]
            try:
                answer = getattr(self._pynvml, function)(handle, *arguments)
                values = [check_reading(value) for value in query.values(answer)]
                return dict(zip(query.fields, values, strict=True))
            except UNREADABLE:
                unread = {prefix + field: _UNREADABLE for field in query.fields}
                self._reasons |= unread
                break
            except self._pynvml.NVMLError as error:
                reason = self._reason_unless_lost(error)
                self._reasons |= {prefix + field: reason for field in query.fields}
                if error.value not in _codes(self._pynvml, _SAME_FOREVER):
                    break
                self._next_form[key] = form + 1
        return dict.fromkeys(query.fields)

    def _reason_unless_lost(self, error: Any) -> str:
        reason = nvml_reason(self._pynvml, error.value)
        if error.value in _codes(self._pynvml, _WHOLE_GPU):
            raise _WholeGpuError(reason) from error
        return reason

    def _mig_enabled(self) -> bool | None:
        return self._query(self._questions.mig_enabled, self.handle)["mig_enabled"]

    def _read_mig(self) -> dict[str, Any]:
        """Return processes and instances under MIG."""
        # Only privileged callers may ask the GPU itself for its processes then; anybody
        # may ask the instances.
        instances: list[MigSample] = []
        held: list[GpuProcess] | None = []
        for handle, uuid, name in self._mig_instances():
            memory = self._query(self._questions.memory, handle, "mig ")
            instances.append(MigSample(uuid, name, **memory))
            processes = self._query(self._questions.processes, handle, "mig ")
            if processes["processes"] is None:
                self._reasons["processes"] = self._reasons["mig processes"]
                held = None
            elif held is not None:
                held += [
                    GpuProcess(process.pid, process.memory_used_bytes, uuid)
                    for process in processes["processes"]
                ]
        return {
            "mig_instances": tuple(instances),
            "processes": None if held is None else tuple(held),
        }

    def _mig_instances(self) -> list[tuple[Any, str, str]]:
        nvml = self._pynvml
        instances: list[tuple[Any, str, str]] = []
        slots = self._query(self._questions.mig_slots, self.handle)["mig_slots"]
        for slot in range(min(slots or 0, _MOST_MIG_SLOTS)):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(self.handle, slot)
                name, uuid = (
                    nvml.nvmlDeviceGetName(handle),
                    nvml.nvmlDeviceGetUUID(handle),
                )
                if isinstance(name, str) and isinstance(uuid, str):
                    instances.append((handle, uuid, name))
            except nvml.NVMLError as error:
                # An empty slot says "not found", and an instance may be destroyed
                # between two of these calls; only a lost GPU ends the reading.
                self._reason_unless_lost(error)
        return instances

    def _count_nvlinks(self) -> int | None:
        nvml = self._pynvml
        count = None
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            try:
                state = nvml.nvmlDeviceGetNvLinkState(self.handle, link)
            except nvml.NVMLError as error:
                self._reason_unless_lost(error)
                break  # The GPU has no link of this number, nor any above it.
            if state not in (nvml.NVML_FEATURE_ENABLED, nvml.NVML_FEATURE_DISABLED):
                return None
            count = (count or 0) + (state == nvml.NVML_FEATURE_ENABLED)
        return count


@functools.cache
def _codes(pynvml: Any, names: tuple[str, ...]) -> frozenset[int]:
    return frozenset(getattr(pynvml, name) for name in names)
