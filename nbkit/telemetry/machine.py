"""Constant facts of this machine, for the record of a run.

Where MLPerf asks for the same fact in its system description, its name follows in
brackets (https://github.com/mlcommons/policies/blob/master/submission_rules.adoc).
"""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from pathlib import Path
from typing import Any

from nbkit.telemetry.control_groups import smallest_limit
from nbkit.telemetry.cpus import usable_cpus
from nbkit.telemetry.topology import number_of, text_of


def describe_machine(*, gpus: bool = True) -> dict[str, Any]:
    """Return the constant facts of this machine, as JSON values; unknown is None."""
    gpu_facts: dict[str, Any] = {}
    if gpus:
        # Here, since importing pynvml takes longer than all the rest.
        from nbkit.telemetry.nvml import describe_gpus

        gpu_facts = describe_gpus()
    dmi = Path("/sys/class/dmi/id")
    product = (text_of(dmi / "sys_vendor"), text_of(dmi / "product_name"))
    return {
        "hostname": socket.gethostname(),
        "system_product": " ".join(filter(None, product)) or None,
        "container": container_kind(),
        "operating_system": _operating_system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        **_describe_cpus(),
        **_describe_memory(),
        "network_cards": _network_cards(),
        "rdma_ports": _rdma_ports(),
        **gpu_facts,
    }


def cpu_model() -> str | None:
    """Return the model of the first processor (host_processor_model_name)."""
    return _cpuinfo().get("model name")


def container_kind() -> str | None:
    """Return the kind of container; None if there is no sign of one."""
    for variable, kind in (
        ("APPTAINER_CONTAINER", "apptainer"),
        ("SINGULARITY_CONTAINER", "singularity"),
        ("KUBERNETES_SERVICE_HOST", "kubernetes"),
    ):
        if variable in os.environ:
            return kind
    for sign, kind in (("/run/.containerenv", "podman"), ("/.dockerenv", "docker")):
        if Path(sign).exists():
            return kind
    return text_of(Path("/run/systemd/container"))


def _operating_system() -> str | None:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system() or None


def _describe_cpus() -> dict[str, Any]:
    folder = Path("/sys/devices/system/cpu")
    numbers = sorted(folder.glob("cpu[0-9]*/topology"))
    packages = [text_of(number / "physical_package_id") for number in numbers]
    cores = {text_of(number / "core_cpus_list") for number in numbers}
    complete = None not in packages and None not in cores and bool(numbers)
    info = _cpuinfo()
    flags = info.get("flags")
    return {
        # Only x86 processors tell a guest that it is one.
        "virtual_machine": None if flags is None else "hypervisor" in flags.split(),
        "hypervisor": _hypervisor(flags),
        "cpu_model": info.get("model name"),
        "num_sockets": len(set(packages)) if complete else None,
        "num_cores": len(cores) if complete else None,
        "num_cpus": os.cpu_count(),
        "usable_cpus": usable_cpus(),
        "num_numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*")))
        or None,
        "cpu_frequency_governor": text_of(folder / "cpu0/cpufreq/scaling_governor"),
    }


def _hypervisor(flags: str | None) -> str | None:
    """Return the hypervisor in the word of systemd-detect-virt, or ``bare metal``."""
    try:
        done = subprocess.run(
            ["systemd-detect-virt", "--vm"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.SubprocessError):  # not installed, or it hangs
        is_metal = flags is not None and "hypervisor" not in flags.split()
        return "bare metal" if is_metal else None
    word = done.stdout.strip()  # its exit status is 1 on bare metal
    return {"": None, "none": "bare metal", "vm-other": None}.get(word, word)


def _cpuinfo() -> dict[str, str]:
    """Return what ``/proc/cpuinfo`` says of the first CPU."""
    first = (text_of(Path("/proc/cpuinfo")) or "").partition("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _describe_memory() -> dict[str, int]:
    import psutil

    total_bytes = psutil.virtual_memory().total
    granted = smallest_limit("memory")
    usable = total_bytes if granted is None else min(granted, total_bytes)
    return {"memory_total_bytes": total_bytes, "usable_memory_bytes": usable}


def _network_cards() -> list[dict[str, Any]]:
    """Return the network interfaces that are hardware."""
    cards: list[dict[str, Any]] = []
    for folder in sorted(Path("/sys/class/net").glob("*")):
        if not (folder / "device").exists():
            continue
        driver = folder / "device/driver"
        cards.append(
            {
                "name": folder.name,
                "driver": driver.resolve().name if driver.exists() else None,
                "speed_megabits_per_second": number_of(folder / "speed"),
                "mtu": number_of(folder / "mtu"),
                "is_up": text_of(folder / "operstate") == "up",
                "numa_node": number_of(folder / "device/numa_node"),
            }
        )
    return cards


def _rdma_ports() -> list[dict[str, Any]]:
    """Return the ports of InfiniBand and RoCE cards."""
    return [
        {
            "name": folder.parent.parent.name,
            "port": int(folder.name),
            "link_layer": text_of(folder / "link_layer"),
            "rate": text_of(folder / "rate"),
            "state": text_of(folder / "state"),
        }
        for folder in sorted(Path("/sys/class/infiniband").glob("*/ports/*"))
    ]
