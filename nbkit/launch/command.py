"""Pure text: from a configuration to environments and command lines."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nbkit.store.paths import RunPaths

if TYPE_CHECKING:
    from nbkit.config import ExperimentConfig

__all__ = [
    "RankPlan",
    "rank_environment",
    "supervisor_argv",
    "torchrun_line",
    "worker_argv",
]

RUN_ID_VARIABLE = "NBKIT_RUN_ID"
"""Marker of every process of a run; see `nbkit.launch.sweep`."""


@dataclass(frozen=True)
class RankPlan:
    """What one attempt's ranks share."""

    attempt: int
    master_port: int
    device_type: str
    """``cuda`` or ``cpu``."""
    devices: Sequence[str]
    """UUIDs of GPUs or MIG instances in the order of local ranks; empty on CPUs."""
    cpus_per_rank: int
    cwd: str
    """Folder in which the ranks run."""
    listen_fd: int
    """Bound socket of the rendezvous store, inherited by rank 0: no port race."""
    lifeline_fd: int
    """Read end of a pipe that closes when the supervisor ends."""
    heartbeat_fd: int
    lease_fds: Sequence[int]
    """Files that keep the run's devices held while any rank has them open."""


def supervisor_argv(root: Path, claim_fd: int) -> list[str]:
    """Return the command that supervises a run.

    Parameters
    ----------
    root
        The run's folder.
    claim_fd
        The open file of its place in the queue.

    Notes
    -----
    ``-P`` keeps the current folder out of the import path: a notebook's folder may
    hold a ``signal.py`` or a ``json.py``.
    """
    module = "nbkit.launch.supervisor"
    return [sys.executable, "-P", "-m", module, str(root), str(claim_fd)]


def worker_argv(root: Path) -> list[str]:
    """Return the command of every rank."""
    return [sys.executable, "-P", "-m", "nbkit.worker", str(root)]


def rank_environment(
    config: ExperimentConfig,
    paths: RunPaths,
    plan: RankPlan,
    rank: int,
    inherited: Mapping[str, str],
) -> dict[str, str]:
    """Return the environment of one rank: torchrun's contract and nbkit's own.

    References
    ----------
    https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables
    """
    local = str(config.gpus)
    environment = {
        **inherited,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(config.world_size),
        "LOCAL_WORLD_SIZE": local,
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": local,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(plan.master_port),
        "TORCHELASTIC_RUN_ID": paths.run_id,
        "TORCHELASTIC_RESTART_COUNT": str(plan.attempt),
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_ERROR_FILE": str(paths.rank(plan.attempt, rank).error),
        "PYTHONUNBUFFERED": "1",
        RUN_ID_VARIABLE: paths.run_id,
        "NBKIT_ATTEMPT": str(plan.attempt),
        "NBKIT_DEVICE_TYPE": plan.device_type,
        "NBKIT_LIFELINE_FD": str(plan.lifeline_fd),
        "NBKIT_HEARTBEAT_FD": str(plan.heartbeat_fd),
    }
    environment.setdefault("OMP_NUM_THREADS", str(plan.cpus_per_rank))
    if rank == 0:
        environment["NBKIT_LISTEN_FD"] = str(plan.listen_fd)
    # On CPUs it is empty: a run touches no device that it does not hold.
    environment["CUDA_VISIBLE_DEVICES"] = ",".join(plan.devices)
    return environment


def torchrun_line(config: ExperimentConfig, root: Path, devices: Sequence[str]) -> str:
    """Return the shell line that does the same without nbkit's supervisor.

    It works in a folder of its own beside the run's, which has one writer a file.

    Parameters
    ----------
    config
        Of the run.
    root
        The run's folder.
    devices
        UUIDs of the run's GPUs, by local rank; empty on CPUs.
    """
    copy = root.with_name(f"{root.name}-torchrun")
    argv = [f"CUDA_VISIBLE_DEVICES={','.join(devices)}", "torchrun"]
    if config.nnodes == 1:
        argv.append("--standalone")
    else:
        argv += [f"--nnodes={config.nnodes}", "--rdzv-backend=c10d"]
        argv += ["--rdzv-endpoint=HOST:PORT"]
    argv += [f"--nproc-per-node={config.gpus}", "-m", "nbkit.worker", str(copy)]
    parts = [str(root / "config.json")]
    if config.has_entry:
        parts = ["-r", *parts, str(root / "code")]
    first = [["mkdir", str(copy)], ["cp", *parts, str(copy)]]
    return " && ".join(map(shlex.join, [*first, argv]))
