"""The ranks of one attempt on this node, and the sampler beside them."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.launch.code.command import RankPlan, torchrun_line, worker_argv
from nbkit.launch.meeting import LOOPBACK, Meeting
from nbkit.launch.supervision.queue import Place
from nbkit.launch.supervision.ranks import RankProcess, start_ranks
from nbkit.store.heartbeat import COLLECTIVES_SIGNAL, Beat, HeartbeatBoard
from nbkit.store.ownership import open_to_append
from nbkit.store.paths import RunPaths
from nbkit.store.processes import hostname, session_members
from nbkit.store.stored_runs import StoredRun
from nbkit.telemetry.child import SamplerProcess, start_sampler
from nbkit.telemetry.oom import OomKills
from nbkit.telemetry.processes import handling

_KILL_SECONDS = 10.0
_STACKS_SECONDS = 0.2
"""What a process has to print its stacks before the next one does."""
_MOST_LOADING = 16
"""Loading processes of a rank that are asked for their stacks."""


@dataclass(frozen=True)
class Node:
    """Which part of a run this machine is."""

    system_name: str
    """Names the file of its samples."""
    rank: int = 0
    """Which of the run's nodes, from 0 on."""
    name: str | None = None
    """What the scheduler calls it; None on the only machine of a run."""


class LocalRanks:
    """Starts ranks as children of this process; watches, signals and ends them.

    `devices` are the UUIDs of the ranks' GPUs, by local rank; None keeps what a
    scheduler has set. Every rank inherits `lease_fds`, which keep them held.
    """

    lost: str | None = None
    """Which node is gone, and how that is known: never this one."""

    def __init__(
        self,
        config: ExperimentConfig,
        paths: RunPaths,
        attempt: int,
        submission: dict[str, Any],
        node: Node,
        *,
        devices: Sequence[str] | None,
        lease_fds: Sequence[int] = (),
        argv: Sequence[str] | None = None,
        container_program: str | None = None,
    ) -> None:
        self.ranks: list[RankProcess] = []
        self._config = config
        self._paths = paths
        self._attempt = attempt
        self._submission = submission
        self._node = node
        self._devices = devices
        self._lease_fds = lease_fds
        self._argv = worker_argv(paths.root) if argv is None else argv
        self._container_program = container_program
        self._selector = selectors.DefaultSelector()
        self._sampler: SamplerProcess | None = None
        self._oom_kills = OomKills()
        self._board = HeartbeatBoard.create(config.gpus)
        self._lifeline, self._lifeline_end = os.pipe()

    def start(self, meeting: Meeting | None = None) -> None:
        """Start the ranks, then the sampler."""
        meeting = meeting or Meeting.here(LOOPBACK)
        listener = meeting.listener
        plan = RankPlan(
            attempt=self._attempt,
            master_address=meeting.address,
            master_port=meeting.port,
            device_type=self._submission["device_type"],
            devices=self._devices,
            cpus_per_rank=self._submission["cpus_per_rank"],
            cwd=self._submission["cwd"],
            listen_fd=None if listener is None else listener.fileno(),
            lifeline_fd=self._lifeline,
            heartbeat_fd=self._board.fd,
            lease_fds=self._lease_fds,
            node_rank=self._node.rank,
            node=self._node.name,
            container_program=self._container_program,
        )
        try:
            self.ranks = start_ranks(self._config, self._paths, plan, self._argv)
        finally:
            if listener is not None:
                listener.close()  # rank 0 has it
        for rank in self.ranks:
            self._selector.register(rank.pidfd, selectors.EVENT_READ)
        self._sampler = self._start_sampler()

    def wait(self, seconds: float) -> list[RankProcess]:
        """Return the ranks that have ended, once one has or the time is over."""
        self._selector.select(seconds)
        ended: list[RankProcess] = []
        for rank in self.ranks:
            pidfd = rank.pidfd
            if rank.ended_at is None and rank.reap():
                self._selector.unregister(pidfd)
                rank.kernel_ran_out_of_memory = self._oom_kills.have_grown()
                ended.append(rank)
        return ended

    def beats(self) -> list[Beat]:
        """Return where every rank is, by local rank."""
        return self._board.read()

    def terminate(self) -> None:
        """Ask the ranks to end at the next step boundary."""
        for rank in self.ranks:
            rank.signal(signal.SIGTERM)

    def kill(self) -> None:
        """End every rank, its loading processes included."""
        for rank in self.ranks:
            rank.signal(signal.SIGKILL)

    def print_stacks(self) -> None:
        """Let every rank print its stacks, and write down its collectives.

        Then let its loading processes, which print to the same log, do so in turn.
        """
        for rank in self.ranks:
            rank.signal(COLLECTIVES_SIGNAL)
            rank.signal(signal.SIGUSR2)
        loading = [
            handling(session_members(rank.identity.pid)[1:], signal.SIGUSR2)
            for rank in self.ranks
        ]
        for pids in zip_longest(*(pids[:_MOST_LOADING] for pids in loading)):
            time.sleep(_STACKS_SECONDS)
            for pid in filter(None, pids):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGUSR2)

    def close(self) -> list[RankProcess]:
        """End ranks and sampler; return the ranks that could not be ended."""
        self.kill()
        stuck: list[RankProcess] = []
        deadline = time.monotonic() + _KILL_SECONDS
        for rank in self.ranks:
            try:
                rank.popen.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                # It hangs in a driver or a file server, and cannot be ended now.
                stuck.append(rank)
                continue
            if rank.ended_at is None:
                rank.reap()
        self._selector.close()
        if self._sampler is not None:
            self._sampler.stop()
        for descriptor in (self._lifeline, self._lifeline_end):
            os.close(descriptor)
        self._board.close()
        return stuck

    def _start_sampler(self) -> SamplerProcess:
        with open_to_append(self._paths.supervisor_log(self._attempt)) as log:
            return start_sampler(
                self._paths.system(self._node.system_name),
                gpu_uuids=self._devices,
                process_roots=[rank.identity.pid for rank in self.ranks],
                stderr=log,
            )


class LocalDevices:
    """The devices of a run on this machine, leased from the pool."""

    def __init__(self, place: Place, submission: dict[str, Any]) -> None:
        self._place = place
        self._submission = submission
        self.system_names = [hostname()]
        """Names the file of this machine's samples."""

    def facts(self, config: ExperimentConfig, root: Path) -> dict[str, Any]:
        """Return what the record's ``launch`` says of them."""
        return {
            "devices": list(self._place.gpus or self._place.replayed),
            "oversubscribed": self._place.shared,
            "torchrun": torchrun_line(
                config,
                root,
                self._place.gpus,
                self._submission["device_type"],
                self._submission["cpus_per_rank"],
            ),
        }

    def ranks(self, run: StoredRun, attempt: int) -> LocalRanks:
        """Return the ranks of an attempt, not started yet."""
        return LocalRanks(
            run.config,
            run.paths,
            attempt,
            self._submission,
            Node(hostname()),
            devices=self._place.gpus,
            lease_fds=self._place.descriptors,
        )
