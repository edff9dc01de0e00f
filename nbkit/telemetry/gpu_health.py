"""The checks of `nbkit doctor` for the driver and each GPU; no GPU work."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nbkit.errors import NvmlUnavailableError
from nbkit.findings import Finding, Severity
from nbkit.health import check, stream
from nbkit.plural import plural
from nbkit.telemetry.condition import GpuCondition
from nbkit.telemetry.cuda_errors import gpu_errors
from nbkit.telemetry.machine import container_kind
from nbkit.telemetry.sample import GpuDevice
from nbkit.telemetry.visible_devices import RESET, unknown_entry, visible_devices

_XID = re.compile(r"NVRM: Xid \(PCI:(?P<slot>[\w:.]+)\): (?P<code>\d+)")
_LOG_SECONDS = 5.0


def checks() -> Iterator[Finding]:
    """Yield the results; the kernel's log, which few may read, comes last."""
    from nbkit.telemetry.nvml import open_nvml

    try:
        with open_nvml() as nvml:
            driver, cuda = nvml.driver_version, nvml.cuda_driver_version
            devices, conditions = nvml.devices(), nvml.conditions()
    except NvmlUnavailableError as error:
        yield _without_nvml(error)
        return
    versions = f"{driver or 'unknown version'}, CUDA up to {cuda or 'unknown'}"
    yield Finding("NVIDIA driver", "ok", versions)
    yield from _kinds(devices)
    for gpu in devices:
        if gpu.error:
            evidence = f"cannot be read ({gpu.error})"
            yield Finding(f"GPU {gpu.index}", "error", evidence, RESET)
        elif gpu.mig_enabled:
            evidence = "in MIG mode; a run can use only one instance"
            yield Finding(f"GPU {gpu.index}", "note", evidence)
    yield from _persistence(devices)
    yield from _conditions([*zip(devices, conditions, strict=True)])
    yield from _hidden(devices, os.environ.get("CUDA_VISIBLE_DEVICES"))
    yield from judge_log(_kernel_log(), devices)


def _without_nvml(error: NvmlUnavailableError) -> Finding:
    if error.reason == "no gpu":
        return Finding("GPUs", "note", "none here: runs compute on CPUs")
    what, _, action = str(error).partition(": ")
    # A container may be meant to compute on CPUs, beside the host's GPUs.
    is_meant = error.reason == "no library" and container_kind() is not None
    severity: Severity = "warning" if is_meant else "error"
    action = f"{action.removesuffix('.')}; until then, runs use CPUs"
    return Finding("GPUs", severity, what, action)


def _kinds(devices: Sequence[GpuDevice]) -> Iterator[Finding]:
    kinds = _by_value((_kind(gpu), gpu.index) for gpu in devices if not gpu.error)
    for kind, indices in kinds:
        yield Finding("GPUs", "ok", f"{len(indices)} x {kind}")
    if len(kinds) > 1:
        alike = ",".join(map(str, max((indices for _, indices in kinds), key=len)))
        evidence = f"{len(kinds)} models: a mixed run is as slow as the slowest GPU"
        action = f"export CUDA_VISIBLE_DEVICES={alike} selects GPUs of one model"
        yield Finding("Mix of GPUs", "warning", evidence, action)


def _kind(gpu: GpuDevice) -> str:
    size = "unknown memory"
    if gpu.memory_total_bytes is not None:
        unified = " unified with the host's" if gpu.memory_unified else ""
        size = f"{gpu.memory_total_bytes / 2**30:.1f} GiB{unified}"
    name = gpu.name or "name unknown"
    return f"{name}, {size}, compute capability {gpu.compute_capability or 'unknown'}"


def _persistence(devices: Sequence[GpuDevice]) -> Iterator[Finding]:
    off = [gpu.index for gpu in devices if gpu.persistence_mode is False]
    if off:
        evidence = (
            f"off on {named(off)}: CUDA takes seconds longer to start on an idle GPU"
        )
        host = "" if container_kind() is None else "on the host, run "
        action = f"{host}sudo nvidia-smi -pm 1"
        yield Finding("Persistence", "warning", evidence, action)
    elif any(gpu.persistence_mode for gpu in devices):
        evidence = "on: the driver keeps the GPUs initialized"
        yield Finding("Persistence", "ok", evidence)


def _conditions(
    gpus: Sequence[tuple[GpuDevice, GpuCondition]],
) -> Iterator[Finding]:
    """Yield what holds GPUs back, alike GPUs in one line."""
    what = "Fabric manager"
    for fabric, indices in _by_value((now.fabric, gpu.index) for gpu, now in gpus):
        is_done = fabric == "completed"
        evidence = f"{fabric} on {named(indices)}: CUDA cannot initialize"
        evidence = f"{named(indices)} can use NVSwitch" if is_done else evidence
        host = "" if container_kind() is None else "on the host, "
        action = (
            f"{host}run sudo systemctl restart nvidia-fabricmanager; its version must "
            "equal the driver's"
        )
        yield check(what, is_done, evidence, action, "error")
    links = ((now.pcie_width, gpu.pcie_width, gpu.index) for gpu, now in gpus)
    for (width, most), indices in _reduced(links):
        evidence = (
            f"{named(indices)} limited to {width} of {most} lanes: slow transfers"
        )
        action = (
            "power off, and reseat the card and the riser; for the PCI address, run "
            "nvidia-smi --query-gpu=index,pci.bus_id --format=csv"
        )
        yield Finding("PCIe link", "warning", evidence, action)
    for gpu, now in gpus:
        if now.remap_failed:
            evidence = (
                "memory is defective and cannot be repaired (row remapping failed)"
            )
            action = "replace the GPU"
            yield Finding(f"GPU {gpu.index}", "error", evidence, action)
        elif now.remap_pending:
            evidence = "defective memory is remapped at the next reset (remap pending)"
            action = (
                "reset the GPU while it is idle (sudo nvidia-smi --gpu-reset -i "
                f"{gpu.index})"
            )
            yield Finding(f"GPU {gpu.index}", "warning", evidence, action)
    limits = (
        (gpu.power_limit_watts, now.power_limit_default_watts, gpu.index)
        for gpu, now in gpus
    )
    for (limit, default), indices in _reduced(limits):
        evidence = f"{named(indices)} limited to {limit:.0f} of {default:.0f} W"
        numbers = ",".join(map(str, indices))
        action = f"sudo nvidia-smi -i {numbers} -pl {default:.0f}"
        yield Finding("Power limit", "warning", evidence, action)


def _reduced(
    values: Iterable[tuple[float | None, float | None, int]],
) -> list[tuple[Any, list[int]]]:
    """Return those of the values that are below the most, with their GPUs."""
    return _by_value(
        ((value, most) if value and value < (most or 0) else None, index)
        for value, most, index in values
    )


def _by_value(pairs: Iterable[tuple[Any, int]]) -> list[tuple[Any, list[int]]]:
    groups: dict[Any, list[int]] = {}
    for value, index in pairs:
        if value is not None:
            groups.setdefault(value, []).append(index)
    return list(groups.items())


def named(indices: Sequence[int]) -> str:
    """Return GPUs by their numbers: ``GPU 0``, ``GPU 0, 1 and 5``."""
    *first, last = map(str, indices)
    return f"GPU {', '.join(first)} and {last}" if first else f"GPU {last}"


def _hidden(devices: Sequence[GpuDevice], setting: str | None) -> Iterator[Finding]:
    # It may name instances of a divided GPU, which are not separate GPUs.
    if setting is None or any(gpu.mig_enabled for gpu in devices):
        return
    what = "Visible GPUs"
    visible = len(visible_devices(devices, setting))
    unknown = unknown_entry(devices, setting)
    if unknown is not None:
        evidence = (
            f"CUDA_VISIBLE_DEVICES={setting!r}: there is no GPU {unknown!r}; CUDA "
            f"ignores it and all later entries, which leaves {visible} of "
            f"{plural(len(devices), 'GPU')}"
        )
        action = "unset it, or use GPUs listed by nvidia-smi -L"
        yield Finding(what, "error", evidence, action)
    elif visible < len(devices):
        evidence = (
            f"{visible} of {len(devices)} GPUs (CUDA_VISIBLE_DEVICES={setting!r})"
        )
        severity: Severity = "note" if visible else "warning"
        yield Finding(what, severity, evidence, "unset it to use them all")


def judge_log(log: str | None, devices: Sequence[GpuDevice]) -> Iterator[Finding]:
    """Yield the errors that the driver wrote into the kernel's log since the boot."""
    what = "Xid errors"
    if log is None:
        evidence = "the kernel log cannot be read"
        yield Finding(what, "note", evidence, "sudo dmesg | grep Xid")
        return
    xids = gpu_errors()["xids"]
    slots = {_slot(gpu.pci_bus_id): f"GPU {gpu.index}" for gpu in devices}
    counts = Counter(
        (slots.get(_slot(match["slot"]), match["slot"]), int(match["code"]))
        for match in _XID.finditer(log)
    )
    if not counts:
        yield Finding(what, "ok", "none in the kernel log")
    for (gpu, code), count in counts.items():
        row = xids.get(str(code), xids["other"])
        evidence = f"{code} on {gpu} ({count}x in the kernel log): {row['what']}"
        if row.get("of_program"):
            yield Finding(what, "note", evidence)
        else:
            index = gpu[4:] if gpu.startswith("GPU ") else f"{gpu.partition('.')[0]}.0"
            action = row["advice"].format(index=index)
            yield Finding(what, "warning", evidence, action)


def _slot(bus_id: str | None) -> str:
    """Return a PCI slot in one form: ``0:1b:00`` of ``00000000:1B:00.0``."""
    # NVML writes the domain with eight digits, the kernel with four. Some machines tell
    # their GPUs apart by it alone.
    domain, _, slot = (bus_id or "").lower().partition(".")[0].partition(":")
    try:
        return f"{int(domain, 16):x}:{slot}"
    except ValueError:
        return ""


def _kernel_log() -> str | None:
    try:
        done = subprocess.run(
            ["dmesg"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LOG_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout


if __name__ == "__main__":
    stream(checks())
