"""What `nbkit doctor` says of the machine: Python, CPUs, memory, limits, driver, GPUs.

The driver comes last: it may hang.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nbkit.errors import NvmlUnavailableError
from nbkit.health import Finding, State, installed, tell
from nbkit.telemetry.control_groups import smallest_limit
from nbkit.telemetry.cpus import usable_cpus
from nbkit.telemetry.gpu_source import SOURCE_VARIABLE, SourceSetting
from nbkit.telemetry.machine import container_kind, describe_machine
from nbkit.telemetry.sample import GpuDevice
from nbkit.telemetry.visible import visible

__all__ = ["findings"]

_SHARED_MEMORY = Path("/dev/shm")
_BATCH_BYTES = 64 * 224 * 224 * 3
"""A batch as loading processes hand it over: 64 images of 224 px in 8 bits."""
_BATCHES_PER_PROCESS = 2
"""Batches that each loading process prepares ahead (``prefetch_factor``)."""

_FEWEST_FILES = 1024
"""The usual soft limit of Linux, with which nbkit is tested."""
_FEWEST_PROCESSES = 4096
"""Threads count too: a rank, its loading processes and torch take hundreds."""


def findings() -> Iterator[Finding]:
    """Yield what is found, the driver last."""
    if platform.system() != "Linux":
        remedy = "runs are launched on Linux; here a store can be read and compared"
        yield Finding("System", "failure", platform.system(), remedy)
        return
    machine = describe_machine(gpus=False)
    yield Finding("System", "ok", _system(machine))
    yield Finding("Python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield Finding("nbkit", "ok", str(installed("nbkit")))
    yield _cpus(machine)
    yield _binding(machine)
    yield _memory(machine["memory_total_bytes"])
    yield _shared_memory(_SHARED_MEMORY)
    yield _open_files()
    yield _processes()
    yield _locked_memory(machine["rdma_ports"])
    yield from _replay()
    yield from _gpus()


def _system(machine: Mapping[str, Any]) -> str:
    parts = [machine["operating_system"], f"Linux {machine['kernel']}"]
    parts += [machine["hypervisor"]] if machine["hypervisor"] else []
    parts += [f"{machine['container']} container"] if machine["container"] else []
    return ", ".join(map(str, parts))


def _cpus(machine: Mapping[str, Any]) -> Finding:
    usable, count = machine["usable_cpus"], machine["num_cpus"]
    found = f"{usable:g} of {count} usable; {machine['cpu_model'] or 'unknown model'}"
    if usable < 1:
        remedy = "a control group grants less than one CPU; ask for more"
        return Finding("CPUs", "warning", found, remedy)
    return Finding("CPUs", "ok", found)


def _binding(machine: Mapping[str, Any]) -> Finding:
    """Try whether a process may choose its CPUs, and say what there is to choose."""
    nodes = machine["num_numa_nodes"]
    try:
        os.sched_setaffinity(0, os.sched_getaffinity(0))
    except OSError as error:
        found = f"not possible here ({error.strerror})"
        remedy = "cpu_binding leaves ranks unbound; allow sched_setaffinity"
        return Finding("CPU binding", "warning", found, remedy)
    count = "NUMA nodes unknown" if nodes is None else f"{nodes} NUMA node"
    plural = "s" if nodes and nodes > 1 else ""
    return Finding("CPU binding", "ok", f"possible; {count}{plural}")


def _memory(total_bytes: int) -> Finding:
    granted = smallest_limit("memory")
    if granted is None or granted >= total_bytes:
        return Finding("Memory", "ok", f"{total_bytes / 2**30:.1f} GiB")
    found = f"{granted / 2**30:.1f} GiB (control group)"
    return Finding("Memory", "ok", f"{found} of {total_bytes / 2**30:.1f} GiB")


def _shared_memory(folder: Path) -> Finding:
    try:
        space = shutil.disk_usage(folder)
    except OSError as error:
        found = f"{folder} cannot be looked at ({error.strerror})"
        remedy = "DataLoader's processes need it; mount a tmpfs there"
        return Finding("Shared memory", "failure", found, remedy)
    processes = max(1, int(usable_cpus()))
    needed = processes * _BATCHES_PER_PROCESS * _BATCH_BYTES
    found = f"{_mib(space.free)} of {_mib(space.total)} free in {folder}"
    if space.free >= needed:
        return Finding("Shared memory", "ok", found)
    remedy = (
        f"{processes} loading processes need about {_mib(needed)}, or end by a bus "
        "error; start the container with a larger --shm-size (or --ipc=host)"
    )
    return Finding("Shared memory", "warning", found, remedy)


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = f"{_count(soft)} (at most {_count(hard)})"
    if soft in range(_FEWEST_FILES):
        remedy = f"ulimit -n {_FEWEST_FILES} or more; loading processes keep many open"
        return Finding("Open files", "warning", found, remedy)
    return Finding("Open files", "ok", found)


def _processes() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    granted = smallest_limit("pids")
    if granted is not None and (granted < soft or soft == resource.RLIM_INFINITY):
        found = f"{granted:,} (control group)"
        if granted >= _FEWEST_PROCESSES:
            return Finding("Processes", "ok", found)
        remedy = (
            f"each thread counts: ask for {_FEWEST_PROCESSES} or more (docker run "
            "--pids-limit; systemd: TasksMax)"
        )
        return Finding("Processes", "warning", found, remedy)
    found = f"{_count(soft)} (at most {_count(hard)})"
    if soft in range(_FEWEST_PROCESSES):
        remedy = f"ulimit -u {_FEWEST_PROCESSES} or more; each thread counts"
        return Finding("Processes", "warning", found, remedy)
    return Finding("Processes", "ok", found)


def _locked_memory(rdma_ports: Sequence[Mapping[str, Any]]) -> Finding:
    """Look at what NCCL needs to register buffers with an InfiniBand or RoCE card.

    References
    ----------
    https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    found = "unlimited" if soft == resource.RLIM_INFINITY else _mib(soft)
    if rdma_ports and soft != resource.RLIM_INFINITY:
        names = ", ".join(sorted({port["name"] for port in rdma_ports}))
        remedy = f"NCCL needs more for {names}: ulimit -l unlimited"
        return Finding("Locked memory", "warning", found, remedy)
    return Finding("Locked memory", "ok", found)


def _replay() -> Iterator[Finding]:
    """Say that viewers play a trace, if somebody has set it."""
    setting = SourceSetting.from_environment()
    if setting.kind == "nvml":
        return
    value = f"{SOURCE_VARIABLE}={setting.kind}:{setting.name}"
    try:
        setting.open().close()
    except NvmlUnavailableError as error:
        # A trace may play a machine without a GPU.
        state: State = "failure" if error.reason == "source cannot be used" else "info"
        yield Finding("GPU replay", state, str(error), f"unset {SOURCE_VARIABLE}")
        return
    found = f"{value}: the sidebar and nbkit monitor play a trace"
    remedy = f"unset {SOURCE_VARIABLE} to see this machine's GPUs"
    yield Finding("GPU replay", "info", found, remedy)


def _gpus() -> Iterator[Finding]:
    from nbkit.telemetry.nvml import open_nvml

    try:
        with open_nvml() as nvml:
            driver, cuda = nvml.driver_version, nvml.cuda_driver_version
            devices = nvml.devices()
    except NvmlUnavailableError as error:
        if error.reason == "no gpu":
            yield Finding("GPUs", "info", "none here: runs compute on CPUs")
        else:
            what, _, remedy = str(error).partition(": ")
            # A container may be meant to compute on CPUs, beside the host's GPUs.
            is_meant = error.reason == "no library" and container_kind() is not None
            state: State = "warning" if is_meant else "failure"
            remedy = f"{remedy.removesuffix('.')}; runs compute on CPUs until then"
            yield Finding("GPUs", state, what, remedy)
        return
    yield Finding("NVIDIA driver", "ok", f"{driver}, CUDA up to {cuda}")
    kinds = Counter(_kind(gpu) for gpu in devices if not gpu.error)
    for kind, count in kinds.items():
        yield Finding("GPUs", "ok", f"{count} x {kind}")
    for gpu in devices:
        yield from _oddities(gpu)
    yield from _hidden(devices, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _kind(gpu: GpuDevice) -> str:
    size = "unknown memory"
    if gpu.memory_total_bytes is not None:
        size = f"{gpu.memory_total_bytes / 2**30:.1f} GiB"
    return f"{gpu.name}, {size}, compute capability {gpu.compute_capability}"


def _oddities(gpu: GpuDevice) -> Iterator[Finding]:
    what = f"GPU {gpu.index}"
    if gpu.error:
        remedy = "look for an Xid message in dmesg, then reset the GPU or reboot"
        yield Finding(what, "failure", f"cannot be read ({gpu.error})", remedy)
    elif gpu.mig_enabled:
        found = "divided by MIG; an instance serves a run of one rank"
        yield Finding(what, "info", found)


def _hidden(devices: Sequence[GpuDevice], setting: str | None) -> Iterator[Finding]:
    # It may name instances of a divided GPU, which are no GPUs of their own.
    if any(gpu.mig_enabled for gpu in devices):
        return
    left = visible(devices, setting)
    if len(left) == len(devices):
        return
    found = f"CUDA_VISIBLE_DEVICES={setting!r} leaves {len(left)} of {len(devices)}"
    state: State = "info" if left else "warning"
    yield Finding("Visible GPUs", state, found, "unset it to use them all")


def _mib(size_bytes: int) -> str:
    if size_bytes >= 2**30:
        return f"{size_bytes / 2**30:.1f} GiB"
    return f"{size_bytes / 2**20:.0f} MiB"


def _count(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else f"{limit:,}"


if __name__ == "__main__":
    tell(findings())
