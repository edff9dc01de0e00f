"""CPU binding of each rank of a node, from the topology of CPUs and GPUs.

The words and what they mean are torchrun's (``--numa-binding``, `torch.numa.binding`):
``numa`` is its ``node``, ``socket`` its ``socket``, ``cores`` its ``exclusive``. As
there, ranks of one NUMA node or socket share all of its CPUs, and ``cores`` gives each
its own whole cores. Unlike there, it works on CPUs too, every rank gets equally many
cores, and where it cannot be, the rank continues unbound and its record says why.

Memory is not bound, as with torchrun: Linux takes a page from the NUMA node of the CPU
that touches it first, which after binding is the right one as long as that node has
free memory (https://docs.kernel.org/admin-guide/mm/numa_memory_policy.html).

References
----------
https://docs.pytorch.org/docs/stable/elastic/numa.html
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from nbkit.telemetry.sample import GpuDevice
from nbkit.telemetry.topology import Cpu
from nbkit.telemetry.visible_devices import visible_devices


@dataclass(frozen=True)
class CpuBinding:
    """CPUs to which a rank is bound, or why it is not."""

    requested: str
    """``cpu_binding`` of the run's configuration."""
    cpus: tuple[int, ...]
    numa_nodes: tuple[int, ...] | None
    """NUMA nodes of these CPUs; None if unknown."""
    sockets: tuple[int, ...] | None
    """Sockets of these CPUs; None if unknown."""
    shared_by: int
    """Number of ranks of this host that share these CPUs."""
    reason: str | None = None
    """Why the rank is not bound as requested, or only to the CPUs that it had before;
    None if it is bound."""


@dataclass(frozen=True)
class GpuNodes:
    """NUMA nodes of the GPUs of a host's ranks."""

    by_number: tuple[int | None, ...]
    """NUMA nodes by CUDA's GPU number; empty if all are unknown."""
    why_unknown: str = "the kernel does not report the NUMA node of its GPU"

    def of(self, local_rank: int) -> int | None:
        """Return the NUMA node of a rank's GPU; None if unknown."""
        nodes = self.by_number
        return nodes[local_rank % len(nodes)] if nodes else None


def gpu_nodes(
    gpus: Sequence[GpuDevice],
    setting: str | None,
    mig_parents: Mapping[str, str],
    cuda_order: str | None,
) -> GpuNodes:
    """Return the NUMA nodes of a process's GPUs, by CUDA's number."""
    # https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables
    allowed = [gpu for gpu in gpus if gpu.uuid and not gpu.error]
    numbered = [replace(gpu, index=number) for number, gpu in enumerate(allowed)]
    parts = None if setting is None else [part.strip() for part in setting.split(",")]
    by_number = parts is None or any(part.isdecimal() for part in parts)
    kinds = {gpu.name for gpu in allowed}
    if by_number and len(kinds) > 1 and cuda_order != "PCI_BUS_ID":
        why = (
            "CUDA orders different GPU models by speed, because CUDA_DEVICE_ORDER is "
            "not PCI_BUS_ID"
        )
        return GpuNodes((), why)
    if parts is None:
        return GpuNodes(tuple(gpu.numa_node for gpu in numbered))
    nodes: list[int | None] = []
    for part in parts:
        match = visible_devices(numbered, part, mig_parents)
        if not match:
            break  # CUDA ignores everything after an invalid entry.
        nodes.append(match[0].numa_node)
        if part.startswith("MIG-"):
            break  # A process gets one MIG instance, and no GPU after it.
    if not nodes:
        return GpuNodes((), f"CUDA_VISIBLE_DEVICES={setting} lists no GPU of this host")
    return GpuNodes(tuple(nodes))


def choose(
    requested: str,
    cpus: Sequence[Cpu],
    local_rank: int,
    local_world_size: int,
    gpus: GpuNodes | None = None,
) -> CpuBinding:
    """Return the CPUs of one rank of a host; every rank computes the same result."""
    usable = [cpu for cpu in cpus if cpu.is_usable]
    if requested == "none":
        return _binding(requested, usable, local_world_size, None)
    placed = [
        _choose_node(requested, cpus, number, local_world_size, gpus)
        for number in range(local_world_size)
    ]
    if requested == "cores":
        return _own_cores(usable, local_rank, placed, on_gpus=gpus is not None)
    own, reason = placed[local_rank]
    if own is None:
        return _binding(requested, usable, local_world_size, reason)
    chosen = [cpu for cpu in usable if _unit(requested, cpu) == own]
    if len({_unit(requested, cpu) for cpu in cpus}) == 1:
        reason = f"this host has one {_WORDS[requested]}"
    elif len(chosen) == len(usable):
        reason = f"all usable CPUs are on {_WORDS[requested]} {own}"
    sharing = sum(place == own for place, _ in placed)
    return _binding(requested, chosen, sharing, reason)


_WORDS = {"numa": "NUMA node", "cores": "NUMA node", "socket": "socket"}


def _unit(requested: str, cpu: Cpu) -> int | None:
    return cpu.socket if requested == "socket" else cpu.numa_node


def _choose_node(
    requested: str,
    cpus: Sequence[Cpu],
    local_rank: int,
    local_world_size: int,
    gpus: GpuNodes | None,
) -> tuple[int | None, str | None]:
    """Return the NUMA node or socket of a rank, or None and why there is none."""
    word = _WORDS[requested]
    usable = [cpu for cpu in cpus if cpu.is_usable]
    everywhere = {_unit(requested, cpu) for cpu in cpus}
    if everywhere == {None}:
        return None, f"the kernel reports no {word}s"
    if gpus is None:
        first = local_rank * len(usable) // local_world_size
        after = (local_rank + 1) * len(usable) // local_world_size
        part = usable[first : max(after, first + 1)]
        own, _ = Counter(_unit(requested, cpu) for cpu in part).most_common(1)[0]
        reason = f"the kernel reports no {word} for CPU {part[0].number}"
        return own, reason if own is None else None
    node = gpus.of(local_rank)
    if len(everywhere) == 1:
        # The kernel often does not say where a GPU is if there is one place only.
        return everywhere.pop(), None
    if node is None:
        return None, gpus.why_unknown
    of_node = [_unit(requested, cpu) for cpu in cpus if cpu.numa_node == node]
    if not of_node:
        return None, f"NUMA node {node} of its GPU has no CPU"
    own = of_node[0]
    if own is None:
        return None, f"the kernel reports no {word} for NUMA node {node}"
    if not any(_unit(requested, cpu) == own for cpu in usable):
        return None, f"{word} {own} of its GPU has no usable CPU"
    return own, None


def _own_cores(
    usable: Sequence[Cpu],
    local_rank: int,
    placed: Sequence[tuple[int | None, str | None]],
    *,
    on_gpus: bool,
) -> CpuBinding:
    """Return equally many cores for every rank, near its GPU if all have such."""
    places = [place for place, _ in placed]
    near = {
        place: _by_core([cpu for cpu in usable if cpu.numa_node == place])
        for place in places
    }
    count = min(len(cores) // places.count(place) for place, cores in near.items())
    reason = None
    if on_gpus and len({cpu.numa_node for cpu in usable}) > 1:
        unknown = [why for place, why in placed if place is None]
        if not unknown and count > 0:
            own = places[local_rank]
            number = places[:local_rank].count(own)
            return _binding("cores", _share(near[own], number, count), 1, None)
        why = unknown[0] if unknown else "a NUMA node has more ranks than cores"
        reason = f"separate cores, but not near its GPU: {why}"
    cores, ranks, sharing = _by_core(usable), len(placed), 1
    if len(cores) >= ranks:
        chosen = _share(cores, local_rank, len(cores) // ranks)
    else:
        count = max(1, len(usable) // ranks)
        first = local_rank * count % len(usable)
        chosen = usable[first : first + count]
        sharing = sum(rank * count % len(usable) == first for rank in range(ranks))
        fewer = "fewer cores than ranks, so ranks are bound to hardware threads"
        reason = reason or fewer
    return _binding("cores", chosen, sharing, reason)


def _share(cores: Sequence[Sequence[Cpu]], number: int, count: int) -> list[Cpu]:
    return list(chain(*cores[number * count : (number + 1) * count]))


def _by_core(cpus: Sequence[Cpu]) -> list[list[Cpu]]:
    cores: dict[str, list[Cpu]] = {}
    for cpu in cpus:
        cores.setdefault(cpu.core, []).append(cpu)
    return list(cores.values())


def _binding(
    requested: str, cpus: Sequence[Cpu], shared_by: int, reason: str | None
) -> CpuBinding:
    return CpuBinding(
        requested,
        tuple(sorted(cpu.number for cpu in cpus)),
        _distinct([cpu.numa_node for cpu in cpus]),
        _distinct([cpu.socket for cpu in cpus]),
        shared_by,
        reason,
    )


def _distinct(numbers: Sequence[int | None]) -> tuple[int, ...] | None:
    distinct = {number for number in numbers if number is not None}
    return tuple(sorted(distinct)) if len(set(numbers)) == len(distinct) else None
