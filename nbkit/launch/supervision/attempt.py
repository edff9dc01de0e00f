"""One attempt of a run: its ranks, from their start to the end of the last one.

It does the same wherever the ranks run: a `RankGroup` starts, watches and signals them.
"""

from __future__ import annotations

import math
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from nbkit.errors import LaunchError, StoreError
from nbkit.launch.supervision import cause as causes
from nbkit.launch.supervision.gpu_cause import attribute_to_gpus
from nbkit.launch.supervision.hang import hang_cause
from nbkit.launch.supervision.journal import Journal
from nbkit.launch.supervision.ranks import LookClock, WatchedRank
from nbkit.launch.supervision.requests import StopRequests
from nbkit.reading import is_transient, retry_io
from nbkit.store.heartbeat import Beat, Phase
from nbkit.store.processes import start_problem
from nbkit.store.record import RunState, read_json, utc_now
from nbkit.store.stored_runs import StoredRun

_TICK_SECONDS = 0.2
# After the first failure the others have this long to fail by themselves, so that the
# record says what each of them saw.
_AFTERMATH_SECONDS = 1.0
_HANDLERS_SECONDS = 30.0
"""What ranks of functions and scripts then have for their own handlers of SIGTERM, as
under torchrun. One without a handler ends immediately."""
_COLLECTIVES_SECONDS = 5.0
"""On GPUs the ranks of a run that hangs also write down what NCCL has recorded, all of
them together and maybe to a file server."""
_STUCK_SECONDS = 20.0
"""A rank that is there so long after it was killed hangs in a driver or a file server,
and cannot be ended."""


class RankGroup(Protocol):
    """All ranks of an attempt, and the samplers beside them."""

    @property
    def ranks(self) -> Sequence[WatchedRank]:
        """Every rank, by rank; empty before the start."""
        ...

    @property
    def lost(self) -> str | None:
        """Which node is gone, and how that is known; its ranks have no exit code."""
        ...

    def start(self) -> None:
        """Start the ranks."""
        ...

    def wait(self, seconds: float) -> Sequence[WatchedRank]:
        """Return the ranks that have ended, once one has or the time is over."""
        ...

    def beats(self) -> list[Beat]:
        """Return where every rank is."""
        ...

    def terminate(self) -> None:
        """Ask the ranks to end at the next step boundary."""
        ...

    def kill(self) -> None:
        """End every rank."""
        ...

    def print_stacks(self) -> None:
        """Let every rank print its stacks, and write down its collectives."""
        ...

    def close(self) -> Sequence[WatchedRank]:
        """End ranks and samplers; return the ranks that could not be ended."""
        ...


class Attempt:
    """The ranks of one attempt, watched; `on_tick` is called several times a second."""

    def __init__(
        self,
        run: StoredRun,
        journal: Journal,
        group: RankGroup,
        requests: StopRequests,
        on_tick: Callable[[], None],
    ) -> None:
        self.number = journal.attempt
        self.cause: dict[str, Any] | None = None
        """Why it ended early, as far as the supervisor knows by itself."""
        self.stop: dict[str, Any] | None = None
        """The first request to stop that it obeyed."""
        self.started = utc_now()
        self._paths = run.paths
        self._config = run.config
        self._journal = journal
        self._group = group
        self._requests = requests
        self._on_tick = on_tick
        self._obeyed: list[dict[str, Any]] = []
        self._deadline: float | None = None
        self._ask_others_at = math.inf
        """When to ask the other ranks of a function or script to end."""
        self._others_are_asked = False
        self._log_sizes: list[int] | None = None
        self._finished_ranks: list[int] = []
        """Ranks that were through before the first failure."""
        self._is_through = False
        """Whether rank 0 of a script has left by itself with exit code 0."""

    @property
    def ranks(self) -> Sequence[WatchedRank]:
        """Every rank that was started."""
        return self._group.ranks

    def run(self) -> None:
        """Start the ranks, watch them, and end every one of them and the samplers."""
        try:
            self._group.start()
            started = [rank.to_dict() for rank in self.ranks]
            pids = [rank["pid"] for rank in started]
            self._journal.event("ranks_started", pids=pids)
            self._watch()
        except LaunchError as error:
            # It may have been given up because of a request to stop.
            self.stop = next(iter(self._requests.look()), None)
            if self.stop is None:
                self.cause = causes.make_cause("launch", str(error))
        except Exception as error:  # noqa: BLE001 - a supervisor always has a last word
            traceback.print_exc()
            what = start_problem(error)
            what = what or f"the supervisor failed: {type(error).__name__}: {error}"
            self.cause = self.cause or causes.make_cause("supervisor", what)
        finally:
            for rank in self._group.close():
                self._journal.event("cannot_be_killed", **rank.to_dict())

    def verdict(self) -> tuple[RunState, dict[str, Any] | None]:
        """Return how it ended, and why if it did not finish."""
        worker = self._worker()
        ready = worker.get("attempt") == self.number
        failed = any(rank.returncode for rank in self.ranks)
        completed = ready and (bool(worker.get("completed")) or self._is_through)
        if self.stop is not None and worker.get("answers_stop"):
            completed = False  # it may have done so because it was asked to
        if self._journal.error is not None:
            cause = causes.make_cause("store", str(self._journal.error))
            return RunState.FAILED, cause
        if self.cause is not None:
            if self._log_sizes is not None:
                logs = zip(self.ranks, self._logs(), self._log_sizes, strict=True)
                self.cause["stacks"] = {
                    str(rank.rank): causes.read_stacks(log, size, self._paths)
                    for rank, log, size in logs
                }
            return RunState.FAILED, attribute_to_gpus(self.cause, self._paths)
        if self._group.lost is not None and not completed:
            return RunState.FAILED, causes.lost_node_cause(
                self._group.lost, self.ranks, self._paths, self.number
            )
        if self.stop is not None and (failed or not completed):
            return RunState.STOPPED, causes.stop_cause(
                self.ranks, self.stop, self._paths, self.number, ready=ready
            )
        if failed:
            return RunState.FAILED, causes.failure_cause(
                self.ranks, self._paths, self.number, self._finished_ranks
            )
        if not completed:
            what = "all ranks exited with code 0 before the last step"
            return RunState.FAILED, causes.make_cause("exit", what)
        return RunState.FINISHED, None

    # Watching

    def _watch(self) -> None:
        beats, clock, still_seconds = self._group.beats(), LookClock(), 0.0
        patience = self._config.hang_timeout_seconds or math.inf
        while not all(rank.ended_at for rank in self.ranks):
            for rank in self._group.wait(_TICK_SECONDS):
                self._on_end(rank)
            self._on_tick()
            self._journal.write_heartbeat()
            self._note_progress()
            self._look_for_stop()
            still_seconds += clock.look()
            if (new := self._group.beats()) != beats:
                beats, still_seconds = new, 0.0
            elif still_seconds > patience and not self.cause:
                self._on_hang(beats, patience)
            now = time.monotonic()
            is_due = now > self._ask_others_at and self.stop is None
            # Once: a second signal would interrupt a handler that saves.
            if is_due and not self._others_are_asked:
                self._others_are_asked = True
                self._group.terminate()
            if self._deadline is not None and now > self._deadline:
                self._group.kill()
                if now > self._deadline + _STUCK_SECONDS:
                    return

    def _on_end(self, rank: WatchedRank) -> None:
        self._journal.event("rank_ended", **rank.to_dict())
        # What it does now is not a cause.
        rank.killed_by_us = rank.killed_by_us or self._others_are_asked
        beats = self._group.beats()
        rank.phase = beats[rank.rank].phase
        done = rank.phase is Phase.DONE
        if rank.returncode == 0 and not done and self._config.task == "script":
            # As under torchrun. A function has something to return.
            done = True
            by_itself = rank.rank == 0 and self.stop is None
            self._is_through = self._is_through or by_itself
        if rank.returncode == 0 and not (done or self.cause or self.stop):
            what = "exited early with code 0 (by os._exit, possibly in a library)"
            log = self._paths.rank(self.number, rank.rank).stderr
            self.cause = causes.make_cause("exit", what, rank.rank, log)
        if rank.returncode != 0 and self._deadline is None:
            self._finished_ranks = [
                other.rank
                for other, beat in zip(self.ranks, beats, strict=True)
                if other is not rank
                and (beat.phase is Phase.DONE or other.returncode == 0)
            ]
        if rank.returncode != 0 or not done:
            self._end_others()

    def _end_others(self) -> None:
        """End ranks that wait for a lost one."""
        if not self._config.has_entry:
            self._end_within(_AFTERMATH_SECONDS)
        elif self.stop is None:  # else they are asked already, and have their grace
            now = time.monotonic()
            self._ask_others_at = min(self._ask_others_at, now + _AFTERMATH_SECONDS)
            self._end_within(_AFTERMATH_SECONDS + _HANDLERS_SECONDS)

    def _end_within(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        self._deadline = min(limit, self._deadline or limit)

    def _note_progress(self) -> None:
        starting = self._journal.state is RunState.STARTING
        if starting and self._ranks_have_met():
            self._journal.set_state(RunState.RUNNING)
        if self._journal.error is not None:
            self._end_within(0.0)

    def _look_for_stop(self) -> None:
        # By SIGTERM a scheduler ends ranks that are not ready, as it asks for the stop.
        codes = {rank.returncode for rank in self.ranks} - {None, 0, -signal.SIGTERM}
        if self.cause is not None or (codes and self.stop is None):
            return  # What came first is what happened.
        for request in self._requests.look():
            if request not in self._obeyed:
                self._obeyed.append(request)
                self._stop_ranks(request)

    def _stop_ranks(self, request: dict[str, Any]) -> None:
        self._end_within(request["grace_seconds"])
        if self.stop is None:
            self.stop = request
            self._journal.set_state(RunState.STOPPING, by=request["by"])
            if not self._others_are_asked:
                self._group.terminate()

    def _on_hang(self, beats: list[Beat], seconds: float) -> None:
        worker = self._worker()
        on_gpus = worker.get("device_type") == "cuda"
        trains = on_gpus and worker.get("task") == "train"
        self.cause = hang_cause(
            beats, seconds, self._paths, self.number, trains_on_gpus=trains
        )
        rank = self.cause["rank"]
        if rank is not None and (node := self.ranks[rank].node):
            self.cause["node"] = node
        self._journal.event("hang", message=self.cause["message"])
        self._log_sizes = [log.stat().st_size for log in self._logs()]
        self._group.print_stacks()
        patience = _COLLECTIVES_SECONDS if on_gpus else _AFTERMATH_SECONDS
        self._deadline = time.monotonic() + patience

    def _logs(self) -> list[Path]:
        return [self._paths.rank(self.number, rank.rank).stderr for rank in self.ranks]

    def _ranks_have_met(self) -> bool:
        """Return whether the ranks have met, as far as a file server answers."""
        try:
            return (read_json(self._paths.worker) or {}).get("attempt") == self.number
        except StoreError as error:
            if not is_transient(error):
                self._journal.error = self._journal.error or error
            return False

    def _worker(self) -> dict[str, Any]:
        try:
            return retry_io(lambda: read_json(self._paths.worker)) or {}
        except StoreError as error:
            self._journal.error = self._journal.error or error
            return {}
