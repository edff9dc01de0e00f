"""The ranks of one attempt that torchrun started, as reported in files."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.errors import LaunchError, StoreError
from nbkit.launch.supervision.ranks import LookClock, WatchedRank
from nbkit.reading import retry_io
from nbkit.store.heartbeat import Beat, Phase
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import read_json, write_json

_START_SECONDS = 60.0
"""Between the first host that starts its ranks and the last: torchrun has let them
begin together."""
_SILENT_SECONDS = 60.0
"""A torchrun tells once a second; one that does not is taken for lost with its host."""
_TICK_SECONDS = 0.1
_STACKS_SECONDS = 10.0
"""What hosts have to hear that stacks are wanted, and to let ranks print them."""
_FILES_PER_SECOND = 1_000
"""How many messages are read: more would keep this process busy."""


def give_orders(paths: RunPaths, attempt: int, orders: Sequence[str]) -> None:
    """Tell every host of a run what to do: ``terminate``, ``stacks``, ``kill``."""
    path = paths.orders(attempt)
    if path.parent.is_dir():
        retry_io(lambda: write_json(path, {"do": list(orders)}))


class TorchrunNode:
    """One host's torchrun, by the file that it writes."""

    def __init__(self, report: dict[str, Any]) -> None:
        self.report = report
        self._silent_seconds = 0.0

    @property
    def name(self) -> str:
        """What the host is called in the run."""
        return self.report["name"] or self.report["host"]

    @property
    def loss(self) -> str | None:
        """How it is known that it is gone without a last word; None if it is not."""
        if self.report["is_over"]:
            return None
        process = ProcessIdentity.from_dict(self.report["process"])
        if process.is_alive() is False:
            return "its torchrun has exited"
        if self._silent_seconds > _SILENT_SECONDS:
            return f"no message from torchrun for {_SILENT_SECONDS:.0f} s"
        return None

    @property
    def is_gone(self) -> bool:
        """Whether nothing more will come from it."""
        return self.report["is_over"] or self.loss is not None

    def update(self, report: dict[str, Any], seconds: float) -> None:
        """Take in a later report."""
        same = report["looks"] == self.report["looks"]
        self._silent_seconds = self._silent_seconds + seconds if same else 0.0
        self.report = report


class TorchrunNodes:
    """The torchruns of one attempt, as far as they have come."""

    def __init__(self, paths: RunPaths, attempt: int) -> None:
        self._folder = paths.torchrun(attempt)
        self._known: dict[str, TorchrunNode] = {}
        self._clock = LookClock()

    def look(self) -> None:
        """Read their reports."""
        seconds = self._clock.look()
        files = list(self._folder.glob("*.json"))
        names = {file.name for file in files}
        # A torchrun that is interrupted while it waits removes its file.
        self._known = {
            name: node
            for name, node in self._known.items()
            if name in names or node.report["ranks"]
        }
        for file in files:
            report = read_json(file)
            if report is None:
                continue
            node = self._known.setdefault(file.name, TorchrunNode(report))
            node.update(report, seconds)

    @property
    def ready(self) -> list[str]:
        """Hosts on which torchrun waits for the others."""
        nodes = [node for node in self._known.values() if node.loss is None]
        return sorted(node.report["host"] for node in nodes)

    @property
    def names(self) -> set[str]:
        """Names of all that have come."""
        return {node.name for node in self._known.values()}

    @property
    def started(self) -> list[TorchrunNode]:
        """Those that have started ranks, the one of rank 0 first."""
        nodes = [node for node in self._known.values() if node.report["ranks"]]
        return sorted(nodes, key=lambda node: node.report["group_rank"])

    @property
    def signalled(self) -> str | None:
        """Which of them got a signal to end, and which; None if none did."""
        for node in self._known.values():
            if node.report["signal"]:
                return f"torchrun on {node.name} ({node.report['signal']})"
        return None


class ManualRanks:
    """Watches and orders ranks on any hosts."""

    kind_of_host = "host"
    advice = "see its terminal"
    """Where to read more of a host that was lost."""
    end_seconds = _SILENT_SECONDS
    """Whether a host that does not answer is lost is known by then."""

    def __init__(
        self,
        config: ExperimentConfig,
        paths: RunPaths,
        attempt: int,
        nodes: TorchrunNodes,
    ) -> None:
        self.ranks = [WatchedRank(rank) for rank in range(config.world_size)]
        self.lost: str | None = None
        """Which host is gone, and how that is known; its ranks have no exit code."""
        self._paths = paths
        self._attempt = attempt
        self._nodes = nodes
        self._nnodes = config.nnodes
        self._heard_at = -math.inf
        self._beats = [Beat(0, Phase.STARTING, 0)] * config.world_size
        self._orders: list[str] = []
        self._ends: dict[int, float] = {}
        """When an end was heard of that `wait` has not told yet, by rank."""

    def start(self) -> None:
        """Wait until every host has started its ranks."""
        deadline = time.monotonic() + _START_SECONDS
        while not all(rank.pid for rank in self.ranks):
            self._read_reports()
            if self._ends:
                return  # what happened to it is what there is to tell
            if time.monotonic() > deadline:
                names = ", ".join(node.name for node in self._nodes.started)
                message = (
                    f"torchrun started ranks only on {names} within "
                    f"{_START_SECONDS:.0f} s, not on all nnodes={self._nnodes} hosts. "
                    "Check its output on the other hosts."
                )
                raise LaunchError(message)
            time.sleep(_TICK_SECONDS)

    def wait(self, seconds: float) -> list[WatchedRank]:
        """Return the ranks whose end was read before; then wait, and read reports.

        In this order a signal to torchrun is known before the ends that it brings.
        """
        ended = self._apply_ends()
        if not ended:
            time.sleep(seconds)
        self._read_reports()
        return ended

    def beats(self) -> list[Beat]:
        """Return where every rank was at its host's last message."""
        return list(self._beats)

    def terminate(self) -> None:
        """Ask the ranks to end at the next step boundary."""
        self._order("terminate")

    def kill(self) -> None:
        """End every rank."""
        self._order("kill")
        for rank in self.ranks:
            if rank.node is None:
                self._end(rank)  # it never came

    def print_stacks(self) -> None:
        """Let every rank print the stacks of its threads to its log."""
        self._order("stacks")
        deadline = time.monotonic() + _STACKS_SECONDS
        # Else the order to end the ranks might come with this one.
        while time.monotonic() < deadline and any(
            "stacks" not in node.report["obeyed"] and not node.is_gone
            for node in self._nodes.started
        ):
            time.sleep(_TICK_SECONDS)
            self._read_reports()

    def close(self) -> list[WatchedRank]:
        """End ranks and samplers; return the ranks that could not be ended."""
        self.kill()
        deadline = time.monotonic() + self.end_seconds
        while time.monotonic() < deadline and not all(
            node.is_gone for node in self._nodes.started
        ):
            time.sleep(_TICK_SECONDS)
            self._read_reports()
        self._apply_ends()
        return [rank for rank in self.ranks if rank.ended_at is None]

    def _apply_ends(self) -> list[WatchedRank]:
        for number, moment in self._ends.items():
            self.ranks[number].ended_at = moment
        ended = [self.ranks[number] for number in self._ends]
        self._ends.clear()
        return ended

    def _order(self, order: str) -> None:
        if order not in self._orders:
            give_orders(self._paths, self._attempt, [*self._orders, order])
            self._orders.append(order)

    def _read_reports(self) -> bool:
        """Read the hosts' reports; return whether they were read now."""
        now = time.monotonic()
        if (now - self._heard_at) * _FILES_PER_SECOND < self._nnodes:
            return False
        self._heard_at = now
        try:
            self._nodes.look()
        except StoreError:
            return False  # the folder is gone, or for a moment its server
        for node in self._nodes.started:
            for report in node.report["ranks"]:
                self._update_rank(self.ranks[report["rank"]], node.name, report)
            if node.loss is not None:
                self._lose(node, node.loss)
        return True

    def _update_rank(
        self, rank: WatchedRank, name: str, report: dict[str, Any]
    ) -> None:
        step, phase, *counters = report["beat"]
        self._beats[rank.rank] = Beat(step, Phase(phase), *counters)
        rank.node, rank.pid = name, report["pid"]
        rank.start_ticks = report["start_ticks"]
        if report["has_ended"] and not self._has_ended(rank):
            rank.returncode = report["returncode"]
            rank.killed_by_us = report["killed_by_us"]
            rank.kernel_ran_out_of_memory = report["kernel_ran_out_of_memory"]
            self._end(rank)

    def _lose(self, node: TorchrunNode, how: str) -> None:
        """Take the ranks of a host for ended; how they ended is unknown."""
        lost_ranks = [
            rank
            for rank in self.ranks
            if rank.node == node.name and not self._has_ended(rank)
        ]
        for rank in lost_ranks:
            self._end(rank)
        if lost_ranks and self.lost is None:
            who = f"{self.kind_of_host} {node.name}"
            self.lost = f"{who} was lost: {how}; {self.advice}"

    def _has_ended(self, rank: WatchedRank) -> bool:
        return rank.ended_at is not None or rank.rank in self._ends

    def _end(self, rank: WatchedRank) -> None:
        if not self._has_ended(rank):
            self._ends[rank.rank] = time.time()
