"""Topology of CPUs and PCI devices: sockets, NUMA nodes and cores.

Read from ``/sys``, below a root folder that a caller may choose.

References
----------
https://docs.kernel.org/admin-guide/cputopology.html
https://docs.kernel.org/admin-guide/mm/numaperf.html (devices/system/node)
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cpu:
    """One logical CPU (hardware thread)."""

    number: int
    core: str
    """CPUs of its core as the kernel lists them, such as ``0,64``; the CPU's own number
    if the kernel reports no core."""
    numa_node: int | None
    socket: int | None
    """The kernel's ``physical_package_id``."""
    is_usable: bool
    """Whether this process may run on it."""


def read_cpus(
    root: Path = Path("/"), usable: Collection[int] | None = None
) -> tuple[Cpu, ...]:
    """Return the CPUs of this machine by socket, NUMA node, core and number."""
    # On many machines the second threads of all cores are numbered after the first
    # ones: by number, two halves would be two threads of every core.
    if usable is None:
        usable = os.sched_getaffinity(0)
    system = root / "sys/devices/system"
    node_of = {
        number: int(folder.name.removeprefix("node"))
        for folder in (system / "node").glob("node[0-9]*")
        for number in cpu_numbers(text_of(folder / "cpulist") or "")
    }
    folders = (system / "cpu").glob("cpu[0-9]*/topology")
    listed = {int(folder.parent.name.removeprefix("cpu")) for folder in folders}
    cpus: list[Cpu] = []
    for number in listed.union(usable):
        folder = system / f"cpu/cpu{number}/topology"
        core = text_of(folder / "core_cpus_list") or str(number)
        socket = number_of(folder / "physical_package_id")
        is_usable = number in usable
        cpus.append(Cpu(number, core, node_of.get(number), socket, is_usable))
    cpus.sort(
        key=lambda cpu: (
            cpu.socket or 0,
            cpu.numa_node or 0,
            cpu_numbers(cpu.core)[0],
            cpu.number,
        )
    )
    return tuple(cpus)


def numa_node_of(pci_bus_id: str | None, root: Path = Path("/")) -> int | None:
    """Return the NUMA node of a PCI slot, if the kernel knows it."""
    # NVML's own NUMA node is another thing: that of a GPU whose memory is a node.
    if pci_bus_id is None:
        return None
    # NVML writes the domain with eight digits, sysfs with four.
    folder = root / "sys/bus/pci/devices" / pci_bus_id[-12:].lower()
    return number_of(folder / "numa_node")


def cpu_numbers(text: str) -> list[int]:
    """Return the numbers of a kernel list, such as ``0-3,8``."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def number_of(path: Path) -> int | None:
    """Return a number; None for -1 or nothing, which the kernel writes if unknown."""
    text = text_of(path)
    return None if text is None or int(text) < 0 else int(text)


def text_of(path: Path) -> str | None:
    """Return the text of a kernel file; None if it is empty or missing."""
    try:
        # Makers fill in what they like, in any encoding.
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None
