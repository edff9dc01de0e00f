"""Separate CPUs for each job: whole cores if there are enough, near its GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from nbkit.errors import ConfigError
from nbkit.launch.devices.choice import Candidate
from nbkit.telemetry.cpu_binding import GpuNodes, choose
from nbkit.telemetry.topology import Cpu


@dataclass(frozen=True)
class CpuShare:
    """What a pinned job has to itself."""

    cpus: tuple[int, ...]
    devices: tuple[str, ...] = ()
    """UUIDs of the GPUs on whose NUMA nodes these CPUs are; empty if that did not
    decide, since there are no GPUs, or there is one NUMA node."""
    fallback_reason: str | None = None
    """Why the CPUs are other than whole cores near its GPUs."""


def cpu_shares(
    cpus: Sequence[Cpu], sizes: Sequence[int], gpus: Sequence[Candidate] = ()
) -> list[CpuShare]:
    """Return the CPUs of each job, in proportion to its devices."""
    total = sum(sizes)
    usable = [cpu for cpu in cpus if cpu.is_usable]
    if len(usable) < total:
        message = (
            f"pinned=true requires {total} CPUs, one per device; usable: "
            f"{len(usable)}. Use pinned=false."
        )
        raise ConfigError(message)
    taken = gpus[:total]
    divided = any(gpu.is_instance for gpu in taken)
    by_gpu = bool(taken) and not divided
    nodes = GpuNodes(tuple(gpu.numa_node for gpu in taken)) if by_gpu else None
    parts = [choose("cores", cpus, place, total, nodes) for place in range(total)]
    reason = next((part.reason for part in parts if part.reason), None)
    if divided:
        reason = "separate cores, chosen regardless of the MIG instance"
    is_near = by_gpu and not reason and len({cpu.numa_node for cpu in usable}) > 1
    ends = [sum(sizes[: job + 1]) for job in range(len(sizes))]
    return [
        CpuShare(
            tuple(sorted(chain(*(part.cpus for part in parts[end - size : end])))),
            tuple(gpu.name for gpu in taken[end - size : end]) if is_near else (),
            reason,
        )
        for end, size in zip(ends, sizes, strict=True)
    ]


def shared_cores(shares: Sequence[Sequence[int]], cpus: Sequence[Cpu]) -> bool:
    """Return whether two jobs have threads of one core."""
    core_of = {cpu.number: cpu.core for cpu in cpus}
    cores = [{core_of[cpu] for cpu in share} for share in shares]
    return sum(map(len, cores)) > len(set[str]().union(*cores))
