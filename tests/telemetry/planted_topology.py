"""Machines that do not exist, as the kernel would show them below a root folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path


def plant(
    root: Path,
    cores: Sequence[tuple[Sequence[int], int, int]],
    gpus: Mapping[str, int] | None = None,
    empty_nodes: Sequence[int] = (),
) -> Path:
    """Write a machine of cores (CPUs, NUMA node, socket); return its root folder."""
    system = root / "sys/devices/system"
    of_node: dict[int, list[int]] = {node: [] for node in empty_nodes}
    for cpus, node, socket in cores:
        of_node.setdefault(node, []).extend(cpus)
        for cpu in cpus:
            folder = system / f"cpu/cpu{cpu}/topology"
            folder.mkdir(parents=True)
            (folder / "physical_package_id").write_text(f"{socket}\n")
            (folder / "core_cpus_list").write_text(f"{_listed(cpus)}\n")
    (system / "cpu/cpufreq").mkdir(exist_ok=True, parents=True)
    for node, cpus in of_node.items():
        folder = system / f"node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{_listed(cpus)}\n")
    for bus_id, node in (gpus or {}).items():
        folder = root / f"sys/bus/pci/devices/{bus_id}"
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{node}\n")
    return root


def two_sockets_of_two_nodes(root: Path) -> Path:
    """Write 16 cores of two threads, the second ones numbered last, and 8 GPUs."""
    cores = [((core, core + 16), core // 4, core // 8) for core in range(16)]
    return plant(root, cores, {bus_id(gpu): gpu // 2 for gpu in range(8)})


def bus_id(gpu: int) -> str:
    """Return the PCI bus id of a planted GPU, as sysfs writes it."""
    return f"0000:{16 * gpu + 15:02x}:00.0"


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
