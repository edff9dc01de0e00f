"""Environments and command lines of ranks, from the configuration."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nbkit.store.paths import RunPaths
from nbkit.store.processes import run_markers
from nbkit.store.record import read_json

if TYPE_CHECKING:
    from nbkit.config import ExperimentConfig


@dataclass(frozen=True)
class RankPlan:
    """What one attempt's ranks on one node share."""

    attempt: int
    master_address: str
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
    """Read end of a pipe that closes when who started the ranks ends."""
    heartbeat_fd: int
    lease_fds: Sequence[int] = ()
    """Files that keep the run's devices held while any rank has them open."""


def supervisor_argv(root: Path, claim_fd: int) -> list[str]:
    """Return the command that supervises a run."""
    # -P: a notebook's folder may hold a signal.py or a json.py.
    module = "nbkit.launch.supervision.supervisor"
    return [sys.executable, "-P", "-m", module, str(root), str(claim_fd)]


def worker_argv(root: Path) -> list[str]:
    """Return the command of every rank, with the options of who launched a function."""
    entry = read_json(RunPaths(root).entry) or {}
    options = entry.get("python_options", [])
    return [sys.executable, *options, "-P", "-m", "nbkit.worker", str(root)]


def rank_environment(
    config: ExperimentConfig,
    paths: RunPaths,
    plan: RankPlan,
    local_rank: int,
    inherited: Mapping[str, str],
) -> dict[str, str]:
    """Return the environment of one rank: torchrun's contract and nbkit's own."""
    rank = str(local_rank)
    environment = {
        **inherited,
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": str(config.world_size),
        "LOCAL_WORLD_SIZE": str(config.gpus),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": str(config.world_size),
        "MASTER_ADDR": plan.master_address,
        "MASTER_PORT": str(plan.master_port),
        "TORCHELASTIC_RUN_ID": paths.run_id,
        "TORCHELASTIC_RESTART_COUNT": str(plan.attempt),
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_ERROR_FILE": str(paths.rank(plan.attempt, local_rank).error),
        "PYTHONUNBUFFERED": "1",
        **run_markers(paths),
        "NBKIT_ATTEMPT": str(plan.attempt),
        "NBKIT_DEVICE_TYPE": plan.device_type,
        "NBKIT_LIFELINE_FD": str(plan.lifeline_fd),
        "NBKIT_HEARTBEAT_FD": str(plan.heartbeat_fd),
    }
    environment |= thread_variables(
        config, plan.device_type, plan.cpus_per_rank, inherited
    )
    if local_rank == 0:
        environment["NBKIT_LISTEN_FD"] = str(plan.listen_fd)
    # On CPUs it is empty: a run touches no device that it does not hold.
    environment["CUDA_VISIBLE_DEVICES"] = ",".join(plan.devices)
    return environment


def thread_variables(
    config: ExperimentConfig,
    device_type: str,
    cpus_per_rank: int | None,
    inherited: Mapping[str, str],
) -> dict[str, str]:
    """Return what a rank's environment adds for OpenMP; the user's own is kept."""
    variables = {}
    if cpus_per_rank is not None:
        variables["OMP_NUM_THREADS"] = str(cpus_per_rank)
    on_cpus = device_type == "cpu"
    if on_cpus and not config.has_entry and "OMP_WAIT_POLICY" not in inherited:
        # Threads that spin for one whose CPU another process has make a step on a busy
        # machine take sixty times as long instead of three; on a quiet one, as long.
        variables["GOMP_SPINCOUNT"] = "3000"
    return {name: value for name, value in variables.items() if name not in inherited}


def node_torchrun(
    config: ExperimentConfig,
    root: Path,
    attempt: int,
    meeting: Sequence[str],
    *,
    python: str = sys.executable,
) -> list[str]:
    """Return the torchrun of each of several nodes, which nbkit watches from within."""
    entry = worker_argv(root)[1:]
    return [
        *(python, "-P", "-m", "torch.distributed.run"),
        *(f"--nnodes={config.nnodes}", f"--nproc-per-node={config.gpus}"),
        *(*meeting, f"--rdzv-id={root.name}-{attempt}", "--logs-specs=nbkit"),
        *(f"--log-dir={RunPaths(root).attempt(attempt)}", "--no-python", python),
        # torchrun fills in macros: $$ is its dollar sign.
        *(word.replace("$", "$$") for word in entry),
    ]


def torchrun_line(
    config: ExperimentConfig,
    root: Path,
    devices: Sequence[str] | None,
    device_type: str,
    cpus_per_rank: int | None,
    host: str = "HOST",
) -> str:
    """Return the shell line that does the same without nbkit, in its own folder."""
    copy = root.with_name(f"{root.name}-torchrun")
    policy = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    own = {name: os.environ[name] for name in policy if name in os.environ}
    variables = thread_variables(config, device_type, cpus_per_rank, own)
    if devices is not None:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(devices)
    argv = [*(f"{name}={value}" for name, value in variables.items()), "torchrun"]
    if config.nnodes == 1:
        argv.append("--standalone")
    else:
        argv += [f"--nnodes={config.nnodes}", "--rdzv-backend=c10d"]
        argv += [f"--rdzv-endpoint={host}:PORT"]
    argv += [f"--nproc-per-node={config.gpus}", "-m", "nbkit.worker", str(copy)]
    parts = [str(root / "config.json")]
    if config.has_entry:
        parts = ["-r", *parts, str(root / "code")]
    first = [["mkdir", str(copy)], ["cp", *parts, str(copy)]]
    return " && ".join(map(shlex.join, [*first, argv]))
