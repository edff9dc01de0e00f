"""Failures that are attributed to the GPU, its driver or its fabric."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nbkit.errors import StoreError
from nbkit.store.paths import RunPaths
from nbkit.store.record import DAMAGE_ERRORS, device_uuids, read_json, unix_seconds
from nbkit.telemetry.cuda_errors import cuda_advice, first_line
from nbkit.telemetry.gpu_faults import faults, last_readings

_SPEAKS_OF_GPU = re.compile(r"cuda|nccl|cudnn|cublas|nvml|\bGPU\b", re.IGNORECASE)
_CRASHES = {"SIGABRT", "SIGBUS", "SIGSEGV"}
"""By which libraries of the driver, or NCCL's watchdog, end a process."""


def attribute_to_gpus(cause: dict[str, Any], paths: RunPaths) -> dict[str, Any]:
    """Return a cause that says so if a GPU of the run is at fault, and what to do."""
    kind, message = cause["kind"], cause["message"]
    if not _may_be_of_gpu(cause):
        return cause
    names, since = _names(paths), _began(paths)
    # Each node of a run has its own file, and so has each of an earlier attempt.
    read = [last_readings(path, names, since) for path in paths.system_files()]
    gpu_faults = [fault for readings in read for fault in faults(readings)]
    broken = [fault for fault in gpu_faults if not fault.of_program]
    advice = cuda_advice(message) if kind == "exception" else None
    if broken or advice:
        may_pass = all(fault.may_pass for fault in broken)
        if advice and not broken:
            may_pass = advice.may_pass
        cause = cause | {"kind": "device", "may_pass": may_pass}
    texts = [fault.text for fault in broken or gpu_faults]
    if advice and not broken:
        texts = [advice.text, *texts]
    if texts:
        cause = cause | {"message": "; ".join([first_line(message), *texts])}
    return cause


def _may_be_of_gpu(cause: Mapping[str, Any]) -> bool:
    kind = cause["kind"]
    if kind in ("exception", "exit", "device"):
        return _SPEAKS_OF_GPU.search(cause["message"]) is not None
    return kind in ("hang", "unknown") or cause["signal"] in _CRASHES


def _names(paths: RunPaths) -> set[str]:
    """Return the UUIDs of the run's GPUs; empty if neither lease nor ranks tell all."""
    try:
        worker, record = read_json(paths.worker) or {}, read_json(paths.record) or {}
    except StoreError:
        return set()
    return {*device_uuids(record, worker)}


def _began(paths: RunPaths) -> float:
    """Return the Unix time before which nothing is of this attempt; 0 if unknown."""
    try:
        record = read_json(paths.record) or {}
        # The first is that of the supervisor's first attempt.
        times = [(record.get("time") or {}).get("started")]
        times += [attempt.get("ended") for attempt in record.get("attempts") or []]
        return max(map(unix_seconds, filter(None, times)), default=0.0)
    except DAMAGE_ERRORS:
        return 0.0
