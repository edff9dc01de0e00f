"""What `nbkit doctor` says of the driver and of each GPU; it starts nothing on them."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from nbkit.errors import NvmlUnavailableError
from nbkit.health import Finding, State, tell
from nbkit.telemetry.condition import GpuCondition
from nbkit.telemetry.machine import container_kind
from nbkit.telemetry.sample import GpuDevice
from nbkit.telemetry.visible_devices import unknown_entry, visible_devices

_What = TypeVar("_What")

_FABRIC = "sudo systemctl restart nvidia-fabricmanager"
_LOST = 79
_OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 69})
"""Xids that a wrong or ended program causes.
https://docs.nvidia.com/deploy/xid-errors/
"""
_XID = re.compile(r"NVRM: Xid \(PCI:(?P<slot>[\w:.]+)\): (?P<code>\d+)")
_LOG_SECONDS = 5.0


def findings() -> Iterator[Finding]:
    """Yield what is found; the kernel's log, which few may read, comes last."""
    from nbkit.telemetry.nvml import open_nvml

    try:
        with open_nvml() as nvml:
            driver, cuda = nvml.driver_version, nvml.cuda_driver_version
            devices, conditions = nvml.devices(), nvml.conditions()
    except NvmlUnavailableError as error:
        yield _without_nvml(error)
        return
    yield Finding("NVIDIA driver", "ok", f"{driver}, CUDA up to {cuda}")
    yield from _kinds(devices)
    for gpu in devices:
        yield from _oddities(gpu)
    yield from _persistence(devices)
    yield from judge_conditions(conditions)
    yield from _hidden(devices, os.environ.get("CUDA_VISIBLE_DEVICES"))
    yield from judge_log(_kernel_log(), devices)


def _without_nvml(error: NvmlUnavailableError) -> Finding:
    if error.reason == "no gpu":
        return Finding("GPUs", "info", "none here: runs compute on CPUs")
    what, _, remedy = str(error).partition(": ")
    # A container may be meant to compute on CPUs, beside the host's GPUs.
    is_meant = error.reason == "no library" and container_kind() is not None
    state: State = "warning" if is_meant else "failure"
    remedy = f"{remedy.removesuffix('.')}; runs compute on CPUs until then"
    return Finding("GPUs", state, what, remedy)


def _kinds(devices: Sequence[GpuDevice]) -> Iterator[Finding]:
    kinds: dict[str, list[int]] = {}
    for gpu in devices:
        if not gpu.error:
            kinds.setdefault(_kind(gpu), []).append(gpu.index)
    for kind, indices in kinds.items():
        yield Finding("GPUs", "ok", f"{len(indices)} x {kind}")
    if len(kinds) > 1:
        alike = ",".join(map(str, max(kinds.values(), key=len)))
        found = f"{len(kinds)} kinds: a run over both waits for the slower at each step"
        remedy = f"export CUDA_VISIBLE_DEVICES={alike} leaves GPUs of one kind"
        yield Finding("Mix of GPUs", "warning", found, remedy)


def _kind(gpu: GpuDevice) -> str:
    size = "unknown memory"
    if gpu.memory_total_bytes is not None:
        unified = " unified with the host's" if gpu.memory_unified else ""
        size = f"{gpu.memory_total_bytes / 2**30:.1f} GiB{unified}"
    name = gpu.name or "name unknown"
    return f"{name}, {size}, compute capability {gpu.compute_capability}"


def _oddities(gpu: GpuDevice) -> Iterator[Finding]:
    what = f"GPU {gpu.index}"
    if gpu.error:
        remedy = "look for an Xid message in dmesg, then reset the GPU or reboot"
        yield Finding(what, "failure", f"cannot be read ({gpu.error})", remedy)
    elif gpu.mig_enabled:
        found = "divided by MIG; an instance serves a run of one rank"
        yield Finding(what, "info", found)


def _persistence(devices: Sequence[GpuDevice]) -> Iterator[Finding]:
    off = [gpu.index for gpu in devices if gpu.persistence_mode is False]
    if off:
        found = f"off on {named(off)}: each start waits seconds for an idle GPU"
        remedy = "sudo nvidia-smi -pm 1"
        if container_kind() is not None:
            remedy += ", on the host"
        yield Finding("Persistence", "warning", found, remedy)
    elif any(gpu.persistence_mode for gpu in devices):
        yield Finding("Persistence", "ok", "on: the driver keeps the GPUs initialised")


def judge_conditions(conditions: Sequence[GpuCondition]) -> Iterator[Finding]:
    """Yield what holds GPUs back, alike GPUs in one line."""
    for fabric, gpus in _alike((one.fabric, one) for one in conditions):
        if fabric == "completed":
            found = f"{named(gpus)} can use NVSwitch"
            yield Finding("Fabric manager", "ok", found)
        else:
            found = f"{fabric} on {named(gpus)}: CUDA does not begin before it is done"
            remedy = f"{_FABRIC}; its version must be the driver's own"
            yield Finding("Fabric manager", "failure", found, remedy)
    yield from _narrow_links(conditions)
    for one in conditions:
        if one.remap_failed:
            found = "memory is damaged and cannot be repaired (row remapping failed)"
            remedy = "take the GPU out of service and have it replaced"
            yield Finding(f"GPU {one.index}", "failure", found, remedy)
        elif one.remap_pending:
            found = "damaged memory is replaced at the next reset (row remap pending)"
            remedy = f"sudo nvidia-smi --gpu-reset -i {one.index}, while it is idle"
            yield Finding(f"GPU {one.index}", "warning", found, remedy)
    yield from _power_caps(conditions)


def _narrow_links(conditions: Sequence[GpuCondition]) -> Iterator[Finding]:
    narrow = [
        ((one.pcie_width, one.pcie_width_max), one)
        for one in conditions
        if one.pcie_width and one.pcie_width < (one.pcie_width_max or 0)
    ]
    for (width, most), gpus in _alike(narrow):
        found = f"{named(gpus)} has {width} of {most} lanes: images and gradients wait"
        remedy = (
            "switch off, reseat card and riser; sudo lspci -vv | grep -i downgraded "
            "shows the slot"
        )
        yield Finding("PCIe link", "warning", found, remedy)


def _power_caps(conditions: Sequence[GpuCondition]) -> Iterator[Finding]:
    capped = [
        ((one.power_limit_watts, one.power_limit_default_watts), one)
        for one in conditions
        if one.power_limit_watts
        and one.power_limit_watts < (one.power_limit_default_watts or 0)
    ]
    for (limit, default), gpus in _alike(capped):
        found = f"{named(gpus)} may draw {limit:.0f} of {default:.0f} W: slower clocks"
        indices = ",".join(str(one) for one in gpus)
        remedy = f"sudo nvidia-smi -i {indices} -pl {default:.0f}"
        yield Finding("Power limit", "warning", found, remedy)


def _alike(
    pairs: Iterable[tuple[_What | None, GpuCondition]],
) -> list[tuple[_What, list[int]]]:
    found: dict[_What, list[int]] = {}
    for what, one in pairs:
        if what is not None:
            found.setdefault(what, []).append(one.index)
    return list(found.items())


def named(indices: Sequence[int]) -> str:
    """Return GPUs by their numbers: ``GPU 0``, ``GPU 0, 1 and 5``."""
    *first, last = map(str, indices)
    return f"GPU {', '.join(first)} and {last}" if first else f"GPU {last}"


def _hidden(devices: Sequence[GpuDevice], setting: str | None) -> Iterator[Finding]:
    # It may name instances of a divided GPU, which are not separate GPUs.
    if setting is None or any(gpu.mig_enabled for gpu in devices):
        return
    left = visible_devices(devices, setting)
    unknown = unknown_entry(devices, setting)
    if unknown is not None:
        found = f"CUDA_VISIBLE_DEVICES={setting!r}: there is no GPU {unknown!r}; CUDA "
        found += f"ignores it and all after it: {len(left)} of {len(devices)} left"
        remedy = "unset it, or name GPUs that nvidia-smi -L lists"
        yield Finding("Visible GPUs", "failure", found, remedy)
    elif len(left) < len(devices):
        found = f"CUDA_VISIBLE_DEVICES={setting!r} leaves {len(left)} of {len(devices)}"
        state: State = "info" if left else "warning"
        yield Finding("Visible GPUs", state, found, "unset it to use them all")


def judge_log(log: str | None, devices: Sequence[GpuDevice]) -> Iterator[Finding]:
    """Yield the errors that the driver wrote into the kernel's log since the boot."""
    if log is None:
        found = "the kernel's log, where the driver reports errors, is closed to you"
        yield Finding("Xid errors", "info", found, "sudo dmesg | grep Xid")
        return
    slots = {_slot(gpu.pci_bus_id): f"GPU {gpu.index}" for gpu in devices}
    seen = Counter(
        (slots.get(_slot(one["slot"]), one["slot"]), int(one["code"]))
        for one in _XID.finditer(log)
    )
    if not seen:
        yield Finding("Xid errors", "ok", "none since the boot")
    for (gpu, code), count in seen.items():
        times = "once" if count == 1 else f"{count} times"
        found = f"{code} of {gpu}, {times} since the boot"
        if code in _OF_PROGRAMS:
            found += ": a program did something wrong or was ended"
            yield Finding("Xid errors", "info", found)
        elif code == _LOST:
            found += ": it fell off the bus"
            yield Finding("Xid errors", "warning", found, "reboot; then check its seat")
        else:
            remedy = "sudo nvidia-smi --gpu-reset, while it is idle; again: replace it"
            yield Finding("Xid errors", "warning", found, remedy)


def _slot(bus_id: str | None) -> str:
    """Return a PCI slot in one form: ``0:1b:00`` of ``00000000:1B:00.0``.

    NVML writes the domain with eight digits, the kernel with four. Some machines tell
    their GPUs apart by it alone.
    """
    domain, _, rest = (bus_id or "").lower().partition(".")[0].partition(":")
    try:
        return f"{int(domain, 16):x}:{rest}"
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
    tell(findings())
