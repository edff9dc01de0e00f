"""What `nbkit doctor` says of starting runs: processes, pool of devices, and Slurm."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

from nbkit.errors import DeviceError
from nbkit.health import Finding, tell
from nbkit.launch.devices.pool_folder import POOL_VARIABLE, allocating, pool_folder
from nbkit.launch.local import refuse_network_pool
from nbkit.launch.meeting import loopback_problem
from nbkit.launch.slurm.partitions import Partition, partitions
from nbkit.store.processes import pidfd_problem
from nbkit.store.slurm import SlurmSilentError, ask_slurm

_OLDEST_SLURM = (22, 5)
"""The oldest version that nbkit is meant for, and the one it is tested with."""
_LIMIT_SECONDS = 10.0
_ASK = "ask the administrator, or see sinfo; other engines work meanwhile"
_MOST_PARTITIONS = 8


def findings() -> Iterator[Finding]:
    """Yield what is found; the pool's folder is made if need be, as a launch does."""
    problems = {"Processes": pidfd_problem(), "Loopback": loopback_problem()}
    for what, why in problems.items():
        if why is not None:
            found, _, remedy = why.partition(": ")
            yield Finding(what, "failure", found, remedy)
    yield _pool()
    yield from _slurm()


def _pool() -> Finding:
    try:
        pool = pool_folder()
        refuse_network_pool(pool)
        with allocating(pool, _LIMIT_SECONDS):
            pass
    except DeviceError as error:
        remedy = f"runs queue there; {POOL_VARIABLE} names another folder"
        return Finding("Pool of devices", "failure", str(error), remedy)
    return Finding("Pool of devices", "ok", f"{pool}, for all users")


def _slurm() -> Iterator[Finding]:
    if shutil.which("sbatch") is None:
        found = 'no sbatch here; only engine="slurm" needs it'
        yield Finding("Slurm", "info", found)
        return
    try:
        said = ask_slurm("sbatch", "--version", limit_seconds=_LIMIT_SECONDS).strip()
        yield _version(said)
        known = partitions()
        ask_slurm("squeue", "--noheader", "--me", limit_seconds=_LIMIT_SECONDS)
    except SlurmSilentError as error:
        found = f"installed, but does not answer: {error}"
        yield Finding("Slurm", "warning", found, _ASK)
        return
    for one in known[:_MOST_PARTITIONS]:
        yield _partition(one)
    if len(known) > _MOST_PARTITIONS:
        found = f"{len(known) - _MOST_PARTITIONS} more; sinfo lists them"
        yield Finding("Partitions", "info", found)


def _version(said: str) -> Finding:
    """Judge what sbatch says of itself, such as ``slurm-wlm 22.05.8``."""
    numbers = re.search(r"(\d+)\.(\d+)", said)
    if numbers and (int(numbers[1]), int(numbers[2])) < _OLDEST_SLURM:
        oldest = ".".join(f"{part:02}" for part in _OLDEST_SLURM)
        remedy = f"nbkit is meant for {oldest} and newer; try a small run first"
        return Finding("Slurm", "warning", said, remedy)
    return Finding("Slurm", "ok", said)


def _partition(one: Partition) -> Finding:
    what = f"Partition {one.name}"
    gpus = ", ".join(
        f"{count.free} of {count.total} {kind} free" for kind, count in one.gpus.items()
    )
    plural = "" if one.nodes_total == 1 else "s"
    found = f"{one.nodes_idle} of {one.nodes_total} node{plural} idle, "
    found += f"GPUs: {gpus or 'none'}, time limit {one.time_limit}"
    if one.is_up:
        return Finding(what, "ok", found)
    return Finding(what, "info", f"starts no jobs now; {found}")


if __name__ == "__main__":
    tell(findings())
