"""CPUs of one's own for each job, whole cores if there are enough."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

__all__ = ["cpu_shares", "cpus_by_core", "shared_cores"]

_SYSTEM = Path("/sys/devices/system/cpu")


def cpus_by_core(root: Path = _SYSTEM) -> list[tuple[int, str]]:
    """Return the usable CPUs, threads of one core next to each other, with their core.

    On many machines the second threads of all cores are numbered behind the first
    ones: two halves by number would be two threads of every core.

    Parameters
    ----------
    root
        The folder that holds ``cpu0``.

    Returns
    -------
    list of (int, str)
        Number, and the CPUs of its core as the kernel lists them; a CPU of which the
        kernel tells no core is one of its own.

    References
    ----------
    https://docs.kernel.org/admin-guide/cputopology.html
    """
    places = []
    for cpu in sorted(os.sched_getaffinity(0)):
        folder = root / f"cpu{cpu}" / "topology"
        package = _read(folder / "physical_package_id") or "0"
        core = _read(folder / "core_cpus_list") or str(cpu)
        places.append((int(package), _first(core), cpu, core))
    return [(cpu, core) for _, _, cpu, core in sorted(places)]


def cpu_shares(
    cpus: Sequence[int], sizes: Sequence[int]
) -> list[tuple[int, ...]] | None:
    """Return the CPUs of each job, in proportion to its devices.

    Parameters
    ----------
    cpus
        Those that may be used, in order.
    sizes
        Devices of each job.

    Returns
    -------
    list of tuple of int, or None
        None if there is not one for each device.
    """
    count = len(cpus) // sum(sizes)
    if count < 1:
        return None
    ends = [count * sum(sizes[: place + 1]) for place in range(len(sizes))]
    return [
        tuple(cpus[end - count * size : end])
        for end, size in zip(ends, sizes, strict=True)
    ]


def shared_cores(
    shares: Sequence[Sequence[int]], by_core: Sequence[tuple[int, str]]
) -> bool:
    """Return whether two jobs have threads of one core."""
    core_of = dict(by_core)
    cores = [{core_of[cpu] for cpu in share} for share in shares]
    return sum(map(len, cores)) > len(set[str]().union(*cores))


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _first(core: str) -> int:
    """Return the first CPU of a list such as ``0,64`` or ``0-1``."""
    return int(core.replace("-", ",").split(",")[0])
