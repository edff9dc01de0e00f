"""The ranks of one attempt as the supervisor's children."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.launch.command import RankPlan, rank_environment, worker_argv
from nbkit.launch.queue import Place
from nbkit.store.heartbeat import HeartbeatBoard
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import read_json

__all__ = ["RankProcess", "start_ranks"]


@dataclass
class RankProcess:
    """One rank: a child that leads a session of its own."""

    rank: int
    identity: ProcessIdentity
    popen: subprocess.Popen[bytes]
    pidfd: int
    ended_at: float | None = None
    """Unix time when its end was noticed."""
    killed_by_us: bool = field(default=False)

    @property
    def returncode(self) -> int | None:
        """Exit code, or minus the signal; None while it runs."""
        return self.popen.returncode

    def reap(self) -> bool:
        """Collect the exit code if there is one; return whether the rank has ended."""
        if self.ended_at is None and self.popen.poll() is not None:
            self.ended_at = time.time()
            os.close(self.pidfd)
        return self.ended_at is not None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the rank; to its whole session if it is SIGKILL."""
        if self.ended_at is not None:
            return
        if number is signal.SIGKILL:
            self.killed_by_us = True
            # The rank leads its own group: loading processes go with it.
            os.killpg(self.identity.pid, number)
        else:
            self.popen.send_signal(number)

    def to_dict(self) -> dict[str, Any]:
        """Return what the record keeps."""
        code = self.returncode
        return {
            "rank": self.rank,
            "pid": self.identity.pid,
            "start_ticks": self.identity.start_ticks,
            "exit_code": code if code is not None and code >= 0 else None,
            "signal": signal.Signals(-code).name if code and code < 0 else None,
        }


def start_ranks(
    config: ExperimentConfig,
    paths: RunPaths,
    attempt: int,
    submission: dict[str, Any],
    place: Place,
    board: HeartbeatBoard,
    lifeline_fd: int,
) -> list[RankProcess]:
    """Start every rank of one attempt.

    Parameters
    ----------
    submission
        ``device_type``, ``cpus_per_rank`` and ``cwd`` matter.
    place
        The devices; every rank inherits the files that keep them held.
    board
        Shared positions of the ranks.
    lifeline_fd
        Read end of a pipe whose write end only this process holds.
    """
    entry = read_json(paths.entry) or {}
    variables = {**os.environ, **entry.get("environment", {})}
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        plan = RankPlan(
            attempt=attempt,
            master_port=listener.getsockname()[1],
            device_type=submission["device_type"],
            devices=place.gpus,
            lease_fds=place.descriptors,
            cpus_per_rank=submission["cpus_per_rank"],
            cwd=submission["cwd"],
            listen_fd=listener.fileno(),
            lifeline_fd=lifeline_fd,
            heartbeat_fd=board.fd,
        )
        # A rank takes a request to stop once it can answer it: until then the signal
        # waits, instead of ending this rank and leaving the others to wait for it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            return [
                _start_rank(config, paths, plan, rank, variables)
                for rank in range(config.world_size)
            ]
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_rank(
    config: ExperimentConfig,
    paths: RunPaths,
    plan: RankPlan,
    rank: int,
    variables: Mapping[str, str],
) -> RankProcess:
    files = paths.rank(plan.attempt, rank)
    files.root.mkdir(parents=True, exist_ok=True)
    inherited = [plan.lifeline_fd, plan.heartbeat_fd, *plan.lease_fds]
    if rank == 0:
        inherited.append(plan.listen_fd)
    with files.stdout.open("ab") as out, files.stderr.open("ab") as err:
        popen = subprocess.Popen(
            worker_argv(paths.root),
            env=rank_environment(config, paths, plan, rank, variables),
            cwd=plan.cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            pass_fds=inherited,
            start_new_session=True,
        )
    pidfd = os.pidfd_open(popen.pid)
    return RankProcess(rank, ProcessIdentity.of(popen.pid), popen, pidfd)
