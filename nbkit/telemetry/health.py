"""The checks of `nbkit doctor` for the machine: CPUs, memory, limits, GPUs.

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
from nbkit.findings import Finding
from nbkit.health import check, installed, stream
from nbkit.packages import (
    DISTRIBUTION,
    NAMESAKE,
    REINSTALL,
    newer_than_tested,
    newest_tested,
)
from nbkit.plural import plural
from nbkit.statistics import size_in_words
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


def checks() -> Iterator[Finding]:
    """Yield the results, the driver last."""
    if platform.system() != "Linux":
        action = "launch on a Linux host; this one can only show and compare runs"
        yield Finding("System", "error", platform.system(), action)
        return
    machine = describe_machine(gpus=False)
    parts = [machine["operating_system"], f"Linux {machine['kernel']}"]
    parts += [machine["hypervisor"]] if machine["hypervisor"] else []
    parts += [f"{machine['container']} container"] if machine["container"] else []
    yield Finding("System", "ok", ", ".join(map(str, parts)))
    evidence = f"{platform.python_version()} ({sys.executable})"
    yield Finding("Python", "ok", evidence)
    yield _nbkit()
    yield from _packages()
    usable, model = machine["usable_cpus"], machine["cpu_model"] or "unknown model"
    evidence = f"{usable:g} of {machine['num_cpus']} usable; {model}"
    action = "the cgroup limit is below one CPU; request more CPUs"
    yield check("CPUs", usable >= 1, evidence, action)
    yield _binding(machine["num_numa_nodes"])
    evidence = f"{machine['memory_total_bytes'] / 2**30:.1f} GiB"
    if (usable := machine["usable_memory_bytes"]) != machine["memory_total_bytes"]:
        evidence = f"{usable / 2**30:.1f} GiB (control group) of {evidence}"
    yield Finding("Memory", "ok", evidence)
    yield shared_memory(len(list(_DEVICES.glob("nvidia[0-9]*"))))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    action = f"set ulimit -n to {_FEWEST_FILES} or more; loaders open many files"
    is_enough = soft not in range(_FEWEST_FILES)
    yield check("Open files", is_enough, _count(soft, hard), action)
    yield _processes()
    yield _locked_memory(machine["rdma_ports"])
    yield from _replay()
    yield from gpu_health.checks()


def _nbkit() -> Finding:
    """Say which nbkit is here, and whether another project's is installed over it."""
    evidence, other = str(installed(DISTRIBUTION)), installed(NAMESAKE)
    if other is not None:
        evidence += f"; the package {NAMESAKE} ({other}), an unrelated "
        evidence += "project that uses the folder nbkit, is also installed"
    # What both have written goes with the other one.
    action = f"pip uninstall -y {NAMESAKE}; {REINSTALL}"
    return check("nbkit", other is None, evidence, action, "error")


def _packages() -> Iterator[Finding]:
    """Say what is newer than all that was tested: where something fails, look there."""
    versions = newest_tested()
    newer = newer_than_tested(versions)
    if newer:
        names = [f"{name} {newer[name]} ({versions[name]} tested)" for name in newer]
        evidence = f"newer than tested: {', '.join(names)}"
        action = "if errors occur, install the tested versions"
        yield Finding("Packages", "note", evidence, action)


def _binding(num_nodes: int | None) -> Finding:
    """Try whether a process may choose its CPUs, and say what there is to choose."""
    try:
        os.sched_setaffinity(0, os.sched_getaffinity(0))
    except OSError as error:
        evidence = f"not possible here ({error.strerror})"
        action = "cpu_binding leaves ranks unbound; allow sched_setaffinity"
        return Finding("CPU binding", "warning", evidence, action)
    nodes = (
        "NUMA nodes unknown" if num_nodes is None else plural(num_nodes, "NUMA node")
    )
    return Finding("CPU binding", "ok", f"possible; {nodes}")


def shared_memory(num_gpus: int, folder: Path = _SHARED_MEMORY) -> Finding:
    """Return whether there is enough shared memory for DataLoader and NCCL."""
    try:
        space = shutil.disk_usage(folder)
    except OSError as error:
        evidence = f"{folder} cannot be checked ({error.strerror})"
        action = (
            f"DataLoader processes require shared memory: run sudo mkdir -p {folder} "
            f"&& sudo mount -t tmpfs tmpfs {folder}"
        )
        return Finding("Shared memory", "error", evidence, action)
    processes = max(1, int(usable_cpus()))
    needed = processes * _BATCHES_PER_PROCESS * _BATCH_BYTES
    who = plural(processes, "loading process", "loading processes")
    if num_gpus > 1:
        needed += _NCCL_BYTES
        who += f" and NCCL between {num_gpus} GPUs"
    free, total = size_in_words(space.free), size_in_words(space.total)
    evidence = f"{free} of {total} free in {folder}"
    size = math.ceil((space.total - space.free + needed) / 2**30)
    action = (
        f"about {size_in_words(needed)} required for {who} (bus error with less): run "
        f"sudo mount -o remount,size={size}G {folder}, or start the container with "
        f"docker run --shm-size={size}g"
    )
    return check("Shared memory", space.free >= needed, evidence, action)


def _processes() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    evidence = _count(soft, hard)
    action = f"set ulimit -u to {_FEWEST_PROCESSES} or more; each thread counts"
    granted = smallest_limit("pids")
    if granted is not None and (granted < soft or soft == resource.RLIM_INFINITY):
        soft, evidence = granted, f"{granted:,} (control group)"
        action = (
            f"each thread counts: allow {_FEWEST_PROCESSES} or more (docker run "
            "--pids-limit; systemd: TasksMax)"
        )
    return check("Processes", soft not in range(_FEWEST_PROCESSES), evidence, action)


def _locked_memory(rdma_ports: Sequence[Mapping[str, Any]]) -> Finding:
    """Look at what NCCL needs to register buffers with an InfiniBand or RoCE card."""
    # https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    is_unlimited = soft == resource.RLIM_INFINITY
    names = ", ".join(sorted({port["name"] for port in rdma_ports}))
    evidence = "unlimited" if is_unlimited else size_in_words(soft)
    action = f"NCCL requires more for {names}: run ulimit -l unlimited"
    return check("Locked memory", is_unlimited or not names, evidence, action)


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
        action = f"unset {SOURCE_VARIABLE}"
        severity = "error" if error.reason == "source cannot be used" else "note"
        yield Finding("GPU replay", severity, str(error), action)
        return
    evidence = f"{value}: the sidebar and nbkit monitor replay a trace"
    action = f"unset {SOURCE_VARIABLE} to see this machine's GPUs"
    yield Finding("GPU replay", "note", evidence, action)


def _count(soft: int, hard: int) -> str:
    limits = (
        "unlimited" if n == resource.RLIM_INFINITY else f"{n:,}" for n in (soft, hard)
    )
    return "{} (hard limit {})".format(*limits)


if __name__ == "__main__":
    stream(checks())
