"""The ranks of one attempt on this node, and the sampler beside them."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.launch.code.command import RankPlan, torchrun_line
from nbkit.launch.devices.pool import Lease
from nbkit.launch.rendezvous import LOOPBACK, listen
from nbkit.launch.supervision.ranks import RankProcess, start_ranks
from nbkit.store.heartbeat import Beat, HeartbeatBoard
from nbkit.store.ownership import open_to_append
from nbkit.store.paths import RunPaths
from nbkit.store.processes import hostname, print_stacks
from nbkit.store.stored_runs import StoredRun
from nbkit.telemetry.child import SamplerProcess, start_sampler
from nbkit.telemetry.oom import OomKills

_KILL_SECONDS = 10.0


class LocalRanks:
    """Starts ranks as children of this process; watches, signals and ends them."""

    lost: str | None = None
    """Which node is gone, and how that is known: never this one."""

    def __init__(
        self,
        config: ExperimentConfig,
        paths: RunPaths,
        attempt: int,
        submission: dict[str, Any],
        devices: Sequence[str],
        lease_fds: Sequence[int],
    ) -> None:
        self.ranks: list[RankProcess] = []
        self._config = config
        self._paths = paths
        self._attempt = attempt
        self._submission = submission
        self._devices = devices
        self._lease_fds = lease_fds
        self._selector = selectors.DefaultSelector()
        self._sampler: SamplerProcess | None = None
        self._oom_kills = OomKills()
        self._board = HeartbeatBoard.create(config.gpus)
        self._lifeline, self._lifeline_end = os.pipe()

    def start(self) -> None:
        """Start the ranks, then the sampler."""
        listener = listen()
        plan = RankPlan(
            attempt=self._attempt,
            master_address=LOOPBACK,
            master_port=listener.getsockname()[1],
            device_type=self._submission["device_type"],
            devices=self._devices,
            cpus_per_rank=self._submission["cpus_per_rank"],
            cwd=self._submission["cwd"],
            listen_fd=listener.fileno(),
            lifeline_fd=self._lifeline,
            heartbeat_fd=self._board.fd,
            lease_fds=self._lease_fds,
        )
        try:
            self.ranks = start_ranks(self._config, self._paths, plan)
        finally:
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
        """Let every rank print its stacks, and write down its collectives."""
        print_stacks([rank.popen.pid for rank in self.ranks if not rank.ended_at])

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
                self._paths.system(hostname()),
                gpu_uuids=self._devices,
                process_roots=[rank.popen.pid for rank in self.ranks],
                stderr=log,
            )


class LocalDevices:
    """The devices of a run on this machine, leased from the pool."""

    is_here = True

    def __init__(self, lease: Lease, submission: dict[str, Any]) -> None:
        self._lease = lease
        self._submission = submission
        self._kind = submission["request"]["kind"]
        self._gpus = lease.devices if self._kind == "cuda" else ()
        """Devices to compute on, by local rank; ranks know nothing of replayed GPUs."""
        self.system_names = [hostname()]
        """Names the file of this machine's samples."""

    def facts(self, config: ExperimentConfig, root: Path) -> dict[str, Any]:
        """Return what the record's ``launch`` says of them."""
        return {
            "devices": [] if self._kind == "cpu" else list(self._lease.devices),
            "oversubscribed": self._lease.shared,
            "torchrun": torchrun_line(
                config,
                root,
                self._gpus,
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
            self._gpus,
            self._lease.descriptors,
        )
