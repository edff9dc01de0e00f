"""What `nbkit doctor` says of the machine: Python, CPUs, memory, limits, driver, GPUs.

The driver comes last: it may hang.
"""

from __future__ import annotations

import math
import os
import platform
import resource
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nbkit.errors import NvmlUnavailableError
from nbkit.health import Finding, State, installed, tell
from nbkit.packages import (
    DISTRIBUTION,
    NAMESAKE,
    REINSTALL,
    newer_than_tested,
    newest_tested,
)
from nbkit.telemetry import gpu_health
from nbkit.telemetry.control_groups import smallest_limit
from nbkit.telemetry.cpus import usable_cpus
from nbkit.telemetry.gpu_source import SOURCE_VARIABLE, SourceSetting
from nbkit.telemetry.machine import describe_machine

_SHARED_MEMORY = Path("/dev/shm")
_DEVICES = Path("/dev")
_NCCL_BYTES = 2**30
"""What NCCL's guide gives a container for several GPUs (``--shm-size=1g``).
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html
"""
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
    yield _nbkit()
    yield from _packages()
    yield _cpus(machine)
    yield _binding(machine)
    yield _memory(machine["memory_total_bytes"], machine["usable_memory_bytes"])
    yield shared_memory(len(list(_DEVICES.glob("nvidia[0-9]*"))))
    yield _open_files()
    yield _processes()
    yield _locked_memory(machine["rdma_ports"])
    yield from _replay()
    yield from gpu_health.findings()


def _nbkit() -> Finding:
    """Say which nbkit is here, and whether another project's is installed over it."""
    version, other = str(installed(DISTRIBUTION)), installed(NAMESAKE)
    if other is None:
        return Finding("nbkit", "ok", version)
    found = f"{version}; a distribution called {NAMESAKE} ({other}) is installed too: "
    found += "another project's, or an nbkit from before it was called "
    found += f"{DISTRIBUTION}; both write into the folder nbkit"
    # What both have written goes with the other one.
    remedy = f"pip uninstall -y {NAMESAKE}; {REINSTALL}"
    return Finding("nbkit", "failure", found, remedy)


def _packages() -> Iterator[Finding]:
    """Say what is newer than all that was tested: where something fails, look there."""
    versions = newest_tested()
    newer = newer_than_tested(versions)
    if newer:
        named = [f"{name} {newer[name]} ({versions[name]} tested)" for name in newer]
        found = f"newer than tested: {', '.join(named)}"
        remedy = "if something fails, try the tested versions"
        yield Finding("Packages", "info", found, remedy)


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


def _memory(total_bytes: int, usable_bytes: int) -> Finding:
    if usable_bytes == total_bytes:
        return Finding("Memory", "ok", f"{total_bytes / 2**30:.1f} GiB")
    found = f"{usable_bytes / 2**30:.1f} GiB (control group)"
    return Finding("Memory", "ok", f"{found} of {total_bytes / 2**30:.1f} GiB")


def shared_memory(num_gpus: int, folder: Path = _SHARED_MEMORY) -> Finding:
    """Return whether loading processes and NCCL have the shared memory they need."""
    try:
        space = shutil.disk_usage(folder)
    except OSError as error:
        found = f"{folder} cannot be looked at ({error.strerror})"
        remedy = f"DataLoader's processes need it: sudo mount -t tmpfs tmpfs {folder}"
        return Finding("Shared memory", "failure", found, remedy)
    processes = max(1, int(usable_cpus()))
    needed = processes * _BATCHES_PER_PROCESS * _BATCH_BYTES
    who = f"{processes} loading processes"
    if num_gpus > 1:
        needed += _NCCL_BYTES
        who += f" and NCCL between {num_gpus} GPUs"
    found = f"{_mib(space.free)} of {_mib(space.total)} free in {folder}"
    if space.free >= needed:
        return Finding("Shared memory", "ok", found)
    size = math.ceil((space.total - space.free + needed) / 2**30)
    remedy = (
        f"{who} need about {_mib(needed)}, or end by a bus error; sudo mount -o "
        f"remount,size={size}G {folder}; a container: docker run --shm-size={size}g"
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
    """Say that viewers play a trace, if one is set."""
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


def _mib(size_bytes: int) -> str:
    if size_bytes >= 2**30:
        return f"{size_bytes / 2**30:.1f} GiB"
    return f"{size_bytes / 2**20:.0f} MiB"


def _count(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else f"{limit:,}"


if __name__ == "__main__":
    tell(findings())
