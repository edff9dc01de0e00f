"""The ranks of one attempt on the nodes of a Slurm job, through an agent on each."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.errors import LaunchError
from nbkit.launch.slurm.messages import line, parse, read_beats
from nbkit.launch.slurm.script import srun_environment
from nbkit.launch.supervision.ranks import LookClock, RemoteRank, signal_number
from nbkit.store.heartbeat import Beat, Phase
from nbkit.store.ownership import make_folder, open_to_append
from nbkit.store.paths import RunPaths
from nbkit.telemetry.software import software_differences

_READY_SECONDS = 300.0
"""Python takes minutes to start from a file server that a hundred nodes ask."""
_SILENT_SECONDS = 30.0
"""An agent speaks once a second; one that does not is taken for lost with its node."""
_VISIBLE_SECONDS = 60.0
"""NFS may answer from memory for so long, unless it is set to longer."""
_END_SECONDS = 20.0
_KILL_SECONDS = 5.0


class _Node:
    """What is known of one node."""

    def __init__(self, index: int, name: str) -> None:
        self.index = index
        self.name = name
        self.ready: dict[str, Any] | None = None
        self.refusal: str | None = None
        """Why it does not continue."""
        self.is_gone = False
        """Whether its agent has said that it ends, or its messages have stopped."""
        self.stuck: list[int] = []
        """Ranks there that its agent could not end."""
        self.silent_seconds = 0.0


class NodeAgents:
    """Starts an agent on every node of a job; hears and orders them.

    Parameters
    ----------
    config
        Of the run.
    paths
        The run's files.
    attempt
        Number of the attempt.
    names
        What Slurm calls the nodes, the one of rank 0 first.
    argv
        The srun that starts the agents.
    software
        Versions that every node must have, by name.
    is_unwanted
        Whether the ranks that are not started yet are no longer needed.
    on_sigterm
        Called when Slurm has asked a node's part of the job to end.
    give_sign
        Called while nodes are waited for, which may take minutes.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        paths: RunPaths,
        attempt: int,
        names: Sequence[str],
        argv: Sequence[str],
        software: dict[str, Any],
        is_unwanted: Callable[[], bool],
        on_sigterm: Callable[[], None] = lambda: None,
        give_sign: Callable[[], None] = lambda: None,
    ) -> None:
        self.ranks: list[RemoteRank] = []
        self.lost: str | None = None
        """Which node is gone, and how that is known; its ranks have no exit code."""
        self._config = config
        self._paths = paths
        self._attempt = attempt
        self._nodes = [_Node(index, name) for index, name in enumerate(names)]
        self._argv = argv
        self._software = software
        self._is_unwanted = is_unwanted
        self._on_sigterm = on_sigterm
        self._give_sign = give_sign
        self._beats = [Beat(0, Phase.STARTING, 0)] * config.world_size
        self._srun: subprocess.Popen[bytes] | None = None
        self._selector = selectors.DefaultSelector()
        self._rest = b""
        self._ended: list[RemoteRank] = []
        self._killed_at: float | None = None
        self._clock = LookClock()
        self._is_closing = False

    def start(self) -> None:
        """Start the agents; once every node is ready, the ranks."""
        log = self._paths.supervisor_log(self._attempt)
        make_folder(log.parent)
        with open_to_append(log) as errors:
            # Its own session: Slurm's signals to the job are answered by the
            # supervisor, and srun would end the step by itself.
            self._srun = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=srun_environment(os.environ),
                start_new_session=True,
            )
        assert self._srun.stdout is not None
        os.set_blocking(self._srun.stdout.fileno(), False)
        self._selector.register(self._srun.stdout, selectors.EVENT_READ)
        self._wait_until_ready()
        gpus = self._config.gpus
        self.ranks = [
            RemoteRank(node.index * gpus + local_rank, node.name)
            for node in self._nodes
            for local_rank in range(gpus)
        ]
        ready = self._nodes[0].ready or {}
        place = {"address": ready["address"], "port": ready["port"]}
        self._order("start", attempt=self._attempt, **place)
        self._wait_for(lambda: all(rank.pid for rank in self.ranks), "has no ranks")

    def wait(self, seconds: float) -> list[RemoteRank]:
        """Return the ranks that have ended, once one has or the time is over."""
        self._hear(seconds)
        self._look_for_lost()
        ended, self._ended = self._ended, []
        return ended

    def beats(self) -> list[Beat]:
        """Return where every rank was at its agent's last message."""
        return list(self._beats)

    def terminate(self) -> None:
        """Ask the ranks to end at the next step boundary."""
        self._order("terminate")

    def kill(self) -> None:
        """End every rank."""
        self._killed_at = self._killed_at or time.monotonic()
        self._order("kill")

    def print_stacks(self) -> None:
        """Let every rank print the stacks of its threads to its log."""
        self._order("stacks")

    def close(self) -> list[RemoteRank]:
        """End ranks, samplers and agents; return the ranks that could not be ended."""
        self._is_closing = True
        if self._srun is None:
            return []
        self.kill()
        assert self._srun.stdin is not None
        with contextlib.suppress(OSError):  # srun was gone before
            self._srun.stdin.close()
        deadline = time.monotonic() + _END_SECONDS
        while not self._is_over() and time.monotonic() < deadline:
            if self.lost and all(node.is_gone for node in self._nodes):
                break  # srun would wait for the lost one
            self._hear(0.2)
        if self._srun.poll() is None:
            self._srun.terminate()  # it ends the step on every node
            try:
                self._srun.wait(_KILL_SECONDS)
            except subprocess.TimeoutExpired:
                self._srun.kill()
                self._srun.wait()
        self._selector.close()
        assert self._srun.stdout is not None
        self._srun.stdout.close()
        stuck = {rank for node in self._nodes for rank in node.stuck}
        silent = {node.name for node in self._nodes if node.ready and not node.is_gone}
        if self.lost is None:
            left = [rank for rank in self.ranks if rank.ended_at is None]
            stuck |= {rank.rank for rank in left if rank.node in silent}
        return [rank for rank in self.ranks if rank.rank in stuck]

    def _is_over(self) -> bool:
        assert self._srun is not None
        if self._srun.poll() is None:
            return False
        self._hear(0.0)
        return True

    def _wait_until_ready(self) -> None:
        self._wait_for(lambda: all(node.ready for node in self._nodes), "is not ready")
        for node in self._nodes:
            assert node.ready is not None
            if found := software_differences(self._software, node.ready["software"]):
                message = (
                    f"node {node.name} has {', '.join(found)}; use the same "
                    "environment on every node, by its path or by slurm.setup."
                )
                raise LaunchError(message)
        self._wait_for_files()

    def _wait_for_files(self) -> None:
        """Wait until what every node has written is seen here."""
        folder = self._paths.system(self._nodes[0].name).parent
        deadline = time.monotonic() + _VISIBLE_SECONDS
        while True:
            self._give_sign()
            # To list a folder makes a file server tell what is new in it.
            there = {path.stem for path in folder.iterdir()}
            hidden = [node.name for node in self._nodes if node.name not in there]
            if not hidden:
                return
            if time.monotonic() > deadline or self._is_unwanted():
                message = (
                    f"what node {', '.join(hidden)} wrote into {self._paths.root} did "
                    f"not arrive on {self._nodes[0].name} within "
                    f"{_VISIBLE_SECONDS:.0f} s: the store must be on a file system "
                    "that all nodes share; set NBKIT_HOME to a folder of one."
                )
                raise LaunchError(message)
            self._hear(0.5)

    def _wait_for(self, done: Callable[[], bool], what: str) -> None:
        """Hear the agents until something is so."""
        assert self._srun is not None
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            self._give_sign()
            is_over = self._srun.poll() is not None
            is_late = time.monotonic() > deadline
            self._hear(0.2)
            if done():
                return
            for node in self._nodes:
                if node.refusal:
                    message = f"node {node.name}: {node.refusal}"
                    raise LaunchError(message)
            if self._is_unwanted():
                message = "stopped before its nodes were ready; launch it again."
                raise LaunchError(message)
            if is_over or is_late:
                left = [node.name for node in self._nodes if not node.ready]
                which = ", ".join(left or [node.name for node in self._nodes])
                why = (
                    f"after {_READY_SECONDS:.0f} s" if is_late else "and srun has ended"
                )
                message = f"the agent on node {which} {what} {why}; {self._advice}"
                raise LaunchError(message)

    @property
    def _advice(self) -> str:
        return f"see {self._paths.supervisor_log(self._attempt)}."

    def _order(self, kind: str, **values: Any) -> None:
        """Tell every agent."""
        assert self._srun is not None
        assert self._srun.stdin is not None
        # If srun is gone, the end of its output tells.
        with contextlib.suppress(OSError, ValueError):
            self._srun.stdin.write(line(kind, **values))
            self._srun.stdin.flush()

    def _hear(self, seconds: float) -> None:
        """Take in what the agents say within some time, or as soon as they do."""
        assert self._srun is not None
        assert self._srun.stdout is not None
        if not self._selector.get_map():
            time.sleep(min(seconds, 0.05))
            return
        if not self._selector.select(seconds):
            return
        # All of it: after a pause of this process an agent's message may come last.
        while True:
            try:
                data = os.read(self._srun.stdout.fileno(), 1 << 20)
            except BlockingIOError:
                return
            if not data:
                self._selector.unregister(self._srun.stdout)
                self._note_end_of_step()
                return
            self._take_lines(data)

    def _take_lines(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for text in lines:
            message = parse(text)
            if message is None:
                sys.stderr.write(text.decode(errors="replace") + "\n")
                continue
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        node = self._nodes[message.get("agent", 0)]
        node.silent_seconds = 0.0
        match message["kind"]:
            case "ready":
                node.name = message["name"]
                node.ready = message
            case "refused":
                node.refusal = message["reason"]
            case "beats":
                beats = read_beats(message)
                first = node.index * self._config.gpus + message["first"]
                self._beats[first : first + len(beats)] = beats
            case "started":
                rank = self.ranks[message["rank"]]
                rank.pid, rank.start_ticks = message["pid"], message["start_ticks"]
            case "ended":
                self._end_rank(message)
            case "sigterm":
                self._on_sigterm()
            case "gone":
                node.stuck = message["stuck"]
                if not self._is_closing:
                    why = f"its agent has ended; {self._advice}"
                    node.refusal = node.refusal or why
                    self._lose([node], node.refusal.rstrip("."))
                node.is_gone = True

    def _end_rank(self, message: dict[str, Any]) -> None:
        rank = self.ranks[message["rank"]]
        name = message["signal"]
        rank.returncode = -signal_number(name) if name else message["exit_code"]
        rank.killed_by_us = message["killed_by_us"]
        rank.kernel_ran_out_of_memory = message["kernel_ran_out_of_memory"]
        rank.ended_at = time.time()
        self._ended.append(rank)

    def _look_for_lost(self) -> None:
        now, seconds = time.monotonic(), _SILENT_SECONDS
        if self._killed_at is not None and now - self._killed_at > _KILL_SECONDS:
            # An agent that is still there has said that its ranks are gone, or keeps
            # saying where they are. Slurm may soon end this process for a lost node.
            seconds = _KILL_SECONDS
        passed = self._clock.look()
        for node in self._nodes:
            node.silent_seconds += passed
        silent = [
            node
            for node in self._nodes
            if not node.is_gone and node.silent_seconds > seconds
        ]
        self._lose(silent, f"no message from its agent for {seconds:.0f} s")

    def _note_end_of_step(self) -> None:
        """Lose nodes that have not said, after the step's end, that all are gone."""
        left = [node for node in self._nodes if not node.is_gone]
        self._lose(left, "Slurm has ended its part of the job")

    def _lose(self, nodes: list[_Node], how: str) -> None:
        """Take the ranks on nodes for ended; how they ended is unknown."""
        names = {node.name for node in nodes}
        left = [rank for rank in self.ranks if rank.ended_at is None]
        theirs = [rank for rank in left if rank.node in names]
        for node in nodes:
            node.is_gone = True
        for rank in theirs:
            rank.ended_at = time.time()
            self._ended.append(rank)
        if theirs and self.lost is None:
            which = ", ".join(dict.fromkeys(str(rank.node) for rank in theirs))
            self.lost = f"node {which} was lost: {how}"
