"""The checks of `nbkit doctor` for launching: processes, device pool, Slurm."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

from nbkit.errors import DeviceError
from nbkit.findings import Finding
from nbkit.health import check, stream
from nbkit.launch.devices.pool_folder import allocating, pool_folder
from nbkit.launch.local import refuse_network_pool
from nbkit.launch.rendezvous import loopback_problem
from nbkit.launch.slurm.partitions import Partition, partitions
from nbkit.plural import plural
from nbkit.store.processes import pidfd_problem
from nbkit.store.slurm import SlurmSilentError, ask_slurm

_OLDEST_SLURM = (22, 5)
"""The oldest version that nbkit is meant for, and the one it is tested with."""
_LIMIT_SECONDS = 10.0
_MOST_PARTITIONS = 8


def checks() -> Iterator[Finding]:
    """Yield the results; the pool's folder is made if need be, as a launch does."""
    problems = {"Processes": pidfd_problem(), "Loopback": loopback_problem()}
    for what, why in problems.items():
        if why is not None:
            evidence, _, action = why.partition(". ")
            yield Finding(what, "error", evidence, action)
    yield _pool()
    yield from _slurm()


def _pool() -> Finding:
    try:
        pool = pool_folder()
        refuse_network_pool(pool)
        with allocating(pool, _LIMIT_SECONDS):
            pass
    except DeviceError as error:
        evidence, _, action = str(error).removesuffix(".").partition(". ")
        return Finding("Device pool", "error", evidence, action)
    return Finding("Device pool", "ok", f"{pool}, for all users")


def _slurm() -> Iterator[Finding]:
    if shutil.which("sbatch") is None:
        evidence = 'sbatch not found; only engine="slurm" needs it'
        yield Finding("Slurm", "note", evidence)
        return
    try:
        version = ask_slurm("sbatch", "--version", limit_seconds=_LIMIT_SECONDS).strip()
        yield _version(version)
        listed = partitions()
        ask_slurm("squeue", "--noheader", "--me", limit_seconds=_LIMIT_SECONDS)
    except SlurmSilentError as error:
        evidence = f"installed, but cannot be queried: {error}"
        action = "run sinfo, or ask the administrator; other engines are not affected"
        yield Finding("Slurm", "warning", evidence, action)
        return
    yield from map(_partition, listed[:_MOST_PARTITIONS])
    if len(listed) > _MOST_PARTITIONS:
        evidence = f"{len(listed) - _MOST_PARTITIONS} more; sinfo lists them"
        yield Finding("Partitions", "note", evidence)


def _version(version: str) -> Finding:
    """Judge what sbatch prints, such as ``slurm-wlm 22.05.8``."""
    numbers = re.search(r"(\d+)\.(\d+)", version)
    is_new = not numbers or (int(numbers[1]), int(numbers[2])) >= _OLDEST_SLURM
    oldest = ".".join(f"{part:02}" for part in _OLDEST_SLURM)
    action = f"nbkit supports {oldest} and newer; test with a small run first"
    return check("Slurm", is_new, version, action)


def _partition(partition: Partition) -> Finding:
    gpus = ", ".join(
        f"{count.free} of {count.total} {kind} free"
        for kind, count in partition.gpus.items()
    )
    evidence = (
        f"{partition.nodes_idle} of {plural(partition.nodes_total, 'node')} idle, "
    )
    evidence += f"GPUs: {gpus or 'none'}, time limit {partition.time_limit}"
    what = f"Partition {partition.name}"
    if partition.is_up:
        return Finding(what, "ok", evidence)
    return Finding(what, "note", f"not up; {evidence}")


if __name__ == "__main__":
    stream(checks())
