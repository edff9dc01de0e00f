"""One rank of an attempt: a child process, or one that a node reports."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.launch.code.command import RankPlan, rank_environment, worker_argv
from nbkit.launch.code.variables import rank_variables
from nbkit.store.heartbeat import Phase
from nbkit.store.ownership import make_folder, open_to_append
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity, kill_session

_LONGEST_LOOK_SECONDS = 1.0


class LookClock:
    """Measures silence in looks, each of which counts as a second at most.

    While this process is suspended, or waits for a file server, no rank is silent.
    """

    def __init__(self) -> None:
        self._looked_at = time.monotonic()

    def look(self) -> float:
        """Return how many seconds count since the last call."""
        now = time.monotonic()
        seconds, self._looked_at = now - self._looked_at, now
        return min(seconds, _LONGEST_LOOK_SECONDS)


@dataclass
class WatchedRank:
    """One rank on some node."""

    rank: int
    """Among all ranks of the run."""
    node: str | None = None
    """None if the run is on one machine, or no node has reported the rank yet."""
    pid: int | None = None
    start_ticks: int | None = None
    returncode: int | None = None
    """Exit code, or minus the signal; None while it runs, or if it is unknown."""
    ended_at: float | None = None
    """Unix time when its end was noticed."""
    killed_by_us: bool = False
    """Whether it was ended by force, or because of another, and not by itself."""
    phase: Phase | None = None
    """What it was doing when it ended, as far as its heartbeat tells."""
    kernel_ran_out_of_memory: bool = False
    """Whether the kernel has killed a process out of memory since its start."""

    def to_dict(self) -> dict[str, Any]:
        """Return what the record keeps."""
        code = self.returncode
        return {
            "rank": self.rank,
            "pid": self.pid,
            "start_ticks": self.start_ticks,
            "node": self.node,
            "exit_code": code if code is not None and code >= 0 else None,
            "signal": signal_name(-code) if code and code < 0 else None,
        }


class RankProcess(WatchedRank):
    """A rank that is a child of this process, and leads its own session."""

    def __init__(self, rank: int, popen: subprocess.Popen[bytes]) -> None:
        start_ticks = ProcessIdentity.of(popen.pid).start_ticks
        super().__init__(rank, pid=popen.pid, start_ticks=start_ticks)
        self.popen = popen
        self.pidfd = os.pidfd_open(popen.pid)

    def reap(self) -> bool:
        """Collect the exit code if there is one; return whether the rank has ended."""
        if self.ended_at is None and self.popen.poll() is not None:
            self.returncode, self.ended_at = self.popen.returncode, time.time()
            os.close(self.pidfd)
        return self.ended_at is not None

    def signal(self, number: int) -> None:
        """Send a signal to the rank; to its whole session if it is SIGKILL."""
        if self.ended_at is not None:
            return
        if number == signal.SIGKILL:
            self.killed_by_us = True
            kill_session(self.popen.pid)  # loading processes go with it
        else:
            self.popen.send_signal(number)


def signal_name(number: int) -> str:
    """Return what a signal is called; its number, if it has no name, as 40."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def collect_orphans() -> None:
    """Collect every child of this process that has ended, adopted ones included."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def start_ranks(
    config: ExperimentConfig, paths: RunPaths, plan: RankPlan
) -> list[RankProcess]:
    """Start every rank of one attempt on this node."""
    argv, variables = worker_argv(paths.root), rank_variables(config, paths)
    # A rank takes a request to stop once it can answer it: until then the signal
    # waits, instead of ending this rank and leaving the others to wait for it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        return [
            _start_rank(config, paths, plan, argv, local_rank, variables)
            for local_rank in range(config.gpus)
        ]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_rank(
    config: ExperimentConfig,
    paths: RunPaths,
    plan: RankPlan,
    argv: Sequence[str],
    local_rank: int,
    variables: Mapping[str, str],
) -> RankProcess:
    files = paths.rank(plan.attempt, local_rank)
    make_folder(files.root, paths.root)
    inherited = [plan.lifeline_fd, plan.heartbeat_fd, *plan.lease_fds]
    if local_rank == 0:
        inherited.append(plan.listen_fd)
    with open_to_append(files.stdout) as out, open_to_append(files.stderr) as err:
        popen = subprocess.Popen(
            argv,
            env=rank_environment(config, paths, plan, local_rank, variables),
            cwd=plan.cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            pass_fds=inherited,
            start_new_session=True,
        )
    return RankProcess(local_rank, popen)
