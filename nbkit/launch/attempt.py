"""One attempt of a run: its ranks, from their start to the end of the last one."""

from __future__ import annotations

import math
import os
import selectors
import signal
import subprocess
import time
import traceback
from collections.abc import Callable
from typing import Any

from nbkit.errors import StoreError
from nbkit.launch import cause as causes
from nbkit.launch.journal import Journal
from nbkit.launch.queue import Place
from nbkit.launch.ranks import RankProcess, start_ranks
from nbkit.launch.requests import StopRequests
from nbkit.store.heartbeat import Beat, HeartbeatBoard, Phase
from nbkit.store.processes import hostname
from nbkit.store.record import RunState, read_json, utc_now
from nbkit.store.runs import StoredRun
from nbkit.telemetry.child import SamplerProcess, start_sampler

__all__ = ["Attempt"]

_TICK_SECONDS = 0.2
# After the first failure the others have this long to fail by themselves, so that the
# record says what each of them saw.
_AFTERMATH_SECONDS = 1.0
_KILL_SECONDS = 10.0


class Attempt:
    """The ranks of one attempt and the sampler beside them.

    Parameters
    ----------
    run
        Of which it is the attempt that the journal's record names.
    journal
        Where its states and events are written.
    submission
        How the run was launched.
    place
        The devices.
    requests
        Who wants the run to stop.
    on_tick
        Called several times a second while ranks run.
    """

    def __init__(
        self,
        run: StoredRun,
        journal: Journal,
        submission: dict[str, Any],
        place: Place,
        requests: StopRequests,
        on_tick: Callable[[], None],
    ) -> None:
        self.number = journal.attempt
        self.ranks: list[RankProcess] = []
        self.cause: dict[str, Any] | None = None
        """Why it ended early, as far as the supervisor knows by itself."""
        self.stop: dict[str, Any] | None = None
        """The first request to stop that it obeyed."""
        self.started = utc_now()
        self._paths = run.paths
        self._config = run.config
        self._journal = journal
        self._submission = submission
        self._place = place
        self._requests = requests
        self._on_tick = on_tick
        self._selector = selectors.DefaultSelector()
        self._sampler: SamplerProcess | None = None
        self._obeyed: list[dict[str, Any]] = []
        self._deadline: float | None = None
        self._log_sizes: list[int] | None = None
        self._oom_kills = causes.oom_kills()

    def run(self) -> None:
        """Start the ranks, watch them, and end every one of them and the sampler."""
        board = HeartbeatBoard.create(self._config.gpus)
        lifeline, lifeline_end = os.pipe()
        try:
            self.ranks = start_ranks(
                self._config,
                self._paths,
                self.number,
                self._submission,
                self._place,
                board,
                lifeline,
            )
            pids = [rank.identity.pid for rank in self.ranks]
            self._journal.event("ranks_started", pids=pids)
            self._sampler = self._start_sampler()
            self._watch(board)
        except Exception as error:  # noqa: BLE001 - a supervisor always has a last word
            traceback.print_exc()
            what = f"the supervisor failed: {type(error).__name__}: {error}"
            self.cause = self.cause or causes.simple_cause("supervisor", what)
        finally:
            self._end()
            for descriptor in (lifeline, lifeline_end, board.fd):
                os.close(descriptor)

    def verdict(self) -> tuple[RunState, dict[str, Any] | None]:
        """Return how it ended, and why if it did not finish."""
        worker = self._worker()
        ready = worker.get("attempt") == self.number
        failed = any(rank.returncode for rank in self.ranks)
        completed = ready and bool(worker.get("completed"))
        if self._journal.error is not None:
            cause = causes.simple_cause("store", str(self._journal.error))
            return RunState.FAILED, cause
        if self.cause is not None:
            if self._log_sizes is not None:
                self.cause["stacks"] = self._stacks(self._log_sizes)
            return RunState.FAILED, self.cause
        if self.stop is not None and (failed or not completed):
            known = self.ranks, self.stop, self._paths, self.number
            return RunState.STOPPED, causes.stop_cause(*known, ready=ready)
        if failed:
            known = self.ranks, self._paths, self.number, self._oom_kills
            return RunState.FAILED, causes.failure_cause(*known)
        if not completed:
            what = "every rank ended with exit code 0 before the last step"
            return RunState.FAILED, causes.simple_cause("exit", what)
        return RunState.FINISHED, None

    # Watching

    def _watch(self, board: HeartbeatBoard) -> None:
        for rank in self.ranks:
            self._selector.register(rank.pidfd, selectors.EVENT_READ)
        beats, moved = board.read(), time.monotonic()
        patience = self._config.hang_timeout_seconds or math.inf
        while not all(rank.ended_at for rank in self.ranks):
            self._selector.select(_TICK_SECONDS)
            self._reap(board)
            self._on_tick()
            self._note_progress()
            self._look_for_stop()
            now = time.monotonic()
            if (new := board.read()) != beats:
                beats, moved = new, now
            elif now - moved > patience and not self.cause:
                self._on_hang(beats, patience)
            if self._deadline is not None and now > self._deadline:
                self._kill_ranks()

    def _reap(self, board: HeartbeatBoard) -> None:
        for rank in self.ranks:
            if rank.ended_at is not None:
                continue
            pidfd = rank.pidfd
            if rank.reap():
                self._selector.unregister(pidfd)
                self._journal.event("rank_ended", **rank.to_dict())
                done = board.read()[rank.rank].phase is Phase.DONE
                if rank.returncode == 0 and not (done or self.cause or self.stop):
                    ended = rank, self._paths, self.number
                    self.cause = causes.early_exit_cause(*ended)
                if rank.returncode or not done:
                    # The others wait for it in vain, whatever they were asked to do.
                    limit = time.monotonic() + _AFTERMATH_SECONDS
                    self._deadline = min(limit, self._deadline or limit)

    def _note_progress(self) -> None:
        starting = self._journal.state is RunState.STARTING
        if starting and self._worker().get("attempt") == self.number:
            self._journal.set_state(RunState.RUNNING)
        if not self._paths.root.is_dir():
            gone = StoreError(f"{self._paths.root} was removed.")
            self._journal.error = self._journal.error or gone
        if self._journal.error is not None:
            self._kill_ranks()

    def _look_for_stop(self) -> None:
        failed = any(rank.returncode for rank in self.ranks)
        if self.cause is not None or failed:
            return  # What came first is what happened.
        for request in self._requests.look():
            if request not in self._obeyed:
                self._obeyed.append(request)
                self._obey(request)

    def _obey(self, request: dict[str, Any]) -> None:
        deadline = time.monotonic() + request["grace_seconds"]
        self._deadline = min(deadline, self._deadline or deadline)
        if self.stop is None:
            self.stop = request
            self._journal.set_state(RunState.STOPPING, by=request["by"])
            for rank in self.ranks:
                rank.signal(signal.SIGTERM)

    def _on_hang(self, beats: list[Beat], seconds: float) -> None:
        self.cause = causes.hang_cause(beats, seconds, self._paths, self.number)
        self._journal.event("hang", message=self.cause["message"])
        self._log_sizes = [self._log_size(rank) for rank in self.ranks]
        for rank in self.ranks:
            rank.signal(signal.SIGUSR2)  # Every rank prints its stacks.
        self._deadline = time.monotonic() + _AFTERMATH_SECONDS

    def _log_size(self, rank: RankProcess) -> int:
        return self._paths.rank(self.number, rank.rank).stderr.stat().st_size

    def _stacks(self, sizes: list[int]) -> dict[str, str]:
        """Return what each rank printed since its log had the size given, by rank."""
        logs = [self._paths.rank(self.number, rank.rank).stderr for rank in self.ranks]
        return {
            str(rank.rank): causes.read_stacks(log, size, self._paths)
            for rank, log, size in zip(self.ranks, logs, sizes, strict=True)
        }

    # Ending

    def _kill_ranks(self) -> None:
        for rank in self.ranks:
            rank.signal(signal.SIGKILL)

    def _end(self) -> None:
        """End the ranks and the sampler."""
        self._kill_ranks()
        for rank in self.ranks:
            try:
                rank.popen.wait(_KILL_SECONDS)
            except subprocess.TimeoutExpired:
                # It hangs in a driver or a file server; nobody can end it now.
                self._journal.event("cannot_be_killed", **rank.to_dict())
                continue
            rank.reap()
        self._selector.close()
        if self._sampler is not None:
            self._sampler.stop()

    def _worker(self) -> dict[str, Any]:
        try:
            return read_json(self._paths.worker) or {}
        except StoreError as error:
            self._journal.error = self._journal.error or error
            return {}

    def _start_sampler(self) -> SamplerProcess:
        with self._paths.supervisor_log(self.number).open("ab") as log:
            return start_sampler(
                self._paths.system(hostname()),
                gpu_uuids=self._place.gpus,
                process_roots=[rank.identity.pid for rank in self.ranks],
                stderr=log,
            )
