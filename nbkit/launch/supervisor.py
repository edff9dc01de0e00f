"""`python -m nbkit.launch.supervisor RUN_DIR`: owns the ranks of one attempt.

1. Leave every session and process group; adopt orphans (child subreaper).
2. Start the ranks, then the sampler; describe code, environment and machine meanwhile.
3. Watch: ranks' ends, the owner's end, requests to stop, positions of the ranks.
4. End everything: what still runs is killed, and everybody is waited for.
5. Write the last record: state, cause, and what only the ranks knew.

It never imports torch. It is the only writer of ``record.json`` and ``events.jsonl``.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import selectors
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbkit.errors import StoreError
from nbkit.launch import cause as causes
from nbkit.launch.provenance import Description, first_record
from nbkit.launch.ranks import RankProcess, start_ranks
from nbkit.launch.sweep import kill, processes_of_run
from nbkit.store.heartbeat import Beat, HeartbeatBoard, Phase
from nbkit.store.metrics import JsonLinesWriter
from nbkit.store.processes import ProcessIdentity, hostname
from nbkit.store.record import RunState, read_json, utc_now, write_json
from nbkit.store.runs import StoredRun
from nbkit.telemetry.child import SamplerProcess, start_sampler
from nbkit.telemetry.system import summarise_system

_TICK_SECONDS = 0.2
# After the first failure the others have this long to fail by themselves, so that the
# record says what each of them saw.
_AFTERMATH_SECONDS = 1.0
_KILL_SECONDS = 10.0
_DESCRIBE_SECONDS = 2.0
_RESERVE_BYTES = 256 * 1024
_OWNER_EXIT = "owner exit"
_PR_SET_CHILD_SUBREAPER = 36


class Supervisor:
    """One attempt of one run.

    Parameters
    ----------
    root
        The run's folder.
    """

    def __init__(self, root: Path) -> None:
        self._run = StoredRun(root)
        self._paths = self._run.paths
        self._config = self._run.config
        self._submission = self._await_submission()
        self._attempt: int = self._submission["attempt"]
        self._me = ProcessIdentity.of()
        self._record = first_record(self._run, self._submission, self._me)
        self._events = JsonLinesWriter(self._paths.events)
        self._selector = selectors.DefaultSelector()
        self._ranks: list[RankProcess] = []
        self._sampler: SamplerProcess | None = None
        self._cause: dict[str, Any] | None = None
        self._stop: dict[str, Any] | None = None
        self._last_request: dict[str, Any] | None = None
        self._deadline: float | None = None
        self._store_error: StoreError | None = None
        self._terminated_by: str | None = None
        cwd = Path(self._submission["cwd"])
        self._description = Description(self._config, self._paths, cwd)
        self._oom_kills = causes.oom_kills()

    def run(self) -> None:
        """Do everything that the module's text lists."""
        signal.signal(signal.SIGTERM, self._on_sigterm)
        board = HeartbeatBoard.create(self._config.gpus)
        lifeline, self._lifeline_end = os.pipe()
        try:
            self._paths.reserve.write_bytes(b"\0" * _RESERVE_BYTES)
        except OSError:
            self._paths.reserve.unlink(missing_ok=True)
        self._write_record()
        try:
            self._ranks = start_ranks(
                self._config,
                self._paths,
                self._attempt,
                self._submission,
                board,
                lifeline,
            )
            self._event("ranks_started", pids=[r.identity.pid for r in self._ranks])
            self._sampler = self._start_sampler()
            self._description.start()
            self._watch(board)
        except Exception as error:  # noqa: BLE001 - a supervisor always has a last word
            traceback.print_exc()
            what = f"the supervisor failed: {type(error).__name__}: {error}"
            self._cause = self._cause or causes.simple_cause("supervisor", what)
        finally:
            self._end_everything()
            # Its git must have ended by itself before leftovers are killed: a diff cut
            # short would pass for a whole one.
            self._description.finish(_DESCRIBE_SECONDS)
            self._take_descriptions()
            self._end_leftovers()
        self._finish()

    # Watching

    def _watch(self, board: HeartbeatBoard) -> None:
        for rank in self._ranks:
            self._selector.register(rank.pidfd, selectors.EVENT_READ)
        self._watch_owner()
        beats, moved = board.read(), time.monotonic()
        patience = self._config.hang_timeout_seconds or math.inf
        while not all(rank.ended_at for rank in self._ranks):
            for key, _ in self._selector.select(_TICK_SECONDS):
                if key.data == _OWNER_EXIT:
                    self._selector.unregister(key.fd)
                    os.close(key.fd)
                    self._terminated_by = _OWNER_EXIT
            self._reap(board)
            self._take_descriptions()
            self._note_progress()
            self._look_for_stop()
            now = time.monotonic()
            if (new := board.read()) != beats:
                beats, moved = new, now
            elif now - moved > patience and not self._cause:
                self._on_hang(beats, patience)
            if self._deadline is not None and now > self._deadline:
                self._kill_ranks()

    def _reap(self, board: HeartbeatBoard) -> None:
        for rank in self._ranks:
            if rank.ended_at is not None:
                continue
            pidfd = rank.pidfd
            if rank.reap():
                self._selector.unregister(pidfd)
                self._event("rank_ended", **rank.to_dict())
                done = board.read()[rank.rank].phase is Phase.DONE
                if rank.returncode == 0 and not (done or self._cause or self._stop):
                    ended = rank, self._paths, self._attempt
                    self._cause = causes.early_exit_cause(*ended)
                if rank.returncode or not done:
                    # The others wait for it in vain, whatever they were asked to do.
                    limit = time.monotonic() + _AFTERMATH_SECONDS
                    self._deadline = min(limit, self._deadline or limit)

    def _note_progress(self) -> None:
        starting = self._record["state"] == RunState.STARTING
        if starting and self._worker().get("attempt") == self._attempt:
            self._set_state(RunState.RUNNING)
        if not self._paths.root.is_dir():
            self._store_error = StoreError(f"{self._paths.root} was removed.")
        if self._store_error is not None:
            self._kill_ranks()

    def _look_for_stop(self) -> None:
        failed = any(rank.returncode for rank in self._ranks)
        if self._cause is not None or failed:
            return  # What came first is what happened.
        request = read_json(self._paths.stop)
        if self._terminated_by is not None and self._stop is None:
            grace = self._config.stop_grace_seconds
            request = {"by": self._terminated_by, "grace_seconds": grace}
        if request is None or request == self._last_request:
            return
        self._last_request = request
        deadline = time.monotonic() + request["grace_seconds"]
        self._deadline = min(deadline, self._deadline or deadline)
        if self._stop is None:
            self._stop = request
            self._set_state(RunState.STOPPING, by=request["by"])
            for rank in self._ranks:
                rank.signal(signal.SIGTERM)

    def _on_hang(self, beats: list[Beat], seconds: float) -> None:
        self._cause = causes.hang_cause(beats, seconds, self._paths, self._attempt)
        self._event("hang", message=self._cause["message"])
        for rank in self._ranks:
            rank.signal(signal.SIGUSR2)  # Every rank prints its stacks.
        self._deadline = time.monotonic() + _AFTERMATH_SECONDS

    def _on_sigterm(self, number: int, frame: object) -> None:
        self._terminated_by = "a signal to the supervisor (SIGTERM)"

    def _watch_owner(self) -> None:
        owner = ProcessIdentity.from_dict(self._submission["owner"])
        if self._submission["on_owner_exit"] != "stop" or not owner.is_here:
            return
        try:
            descriptor = os.pidfd_open(owner.pid)
        except ProcessLookupError:
            self._terminated_by = _OWNER_EXIT
            return
        if owner.is_alive():
            self._selector.register(descriptor, selectors.EVENT_READ, _OWNER_EXIT)
        else:
            os.close(descriptor)
            self._terminated_by = _OWNER_EXIT

    # Ending

    def _kill_ranks(self) -> None:
        for rank in self._ranks:
            rank.signal(signal.SIGKILL)

    def _end_everything(self) -> None:
        """End the ranks and the sampler."""
        self._kill_ranks()
        for rank in self._ranks:
            try:
                rank.popen.wait(_KILL_SECONDS)
            except subprocess.TimeoutExpired:
                # It hangs in a driver or a file server; nobody can end it now.
                self._event("cannot_be_killed", **rank.to_dict())
                continue
            rank.reap()
        self._selector.close()
        if self._sampler is not None:
            self._sampler.stop()
        os.close(self._lifeline_end)

    def _end_leftovers(self) -> None:
        """Leave no process of the run but this one, and no zombie."""
        deadline = time.monotonic() + 5
        while left := self._leftovers():
            for process in left:
                kill(process)
            _wait_for_orphans()
            if time.monotonic() > deadline:
                self._event("leftovers", pids=[process.pid for process in left])
                return
            time.sleep(0.02)
        _wait_for_orphans()

    def _leftovers(self) -> list[ProcessIdentity]:
        return [p for p in processes_of_run(self._paths) if p != self._me]

    def _finish(self) -> None:
        worker = self._worker()
        state = RunState.FINISHED
        failed = [rank for rank in self._ranks if rank.returncode]
        completed = worker.get("completed") and worker.get("attempt") == self._attempt
        if self._store_error is not None:
            state = RunState.FAILED
            self._cause = causes.simple_cause("store", str(self._store_error))
        elif self._cause is not None:
            state = RunState.FAILED
        elif self._stop is not None and not (completed and not failed):
            state = RunState.STOPPED
            self._cause = causes.stop_cause(
                self._ranks,
                self._stop,
                self._paths,
                self._attempt,
                ready=worker.get("attempt") == self._attempt,
            )
        elif failed:
            state = RunState.FAILED
            self._cause = causes.failure_cause(
                self._ranks, self._paths, self._attempt, self._oom_kills
            )
        elif not completed:
            state = RunState.FAILED
            self._cause = causes.simple_cause(
                "exit", "every rank ended with exit code 0 before the last step"
            )
        self._record["worker"] = worker or None
        try:
            self._record["system"] = summarise_system(
                self._paths.system(hostname()),
                self._pids_of_all_attempts(),
            )
        except Exception:  # noqa: BLE001 - unknown is no reason to have no last word
            traceback.print_exc()
        self._record["cause"] = self._cause
        self._set_state(state, cause=self._cause)
        self._paths.reserve.unlink(missing_ok=True)
        self._events.close()

    # Writing

    def _await_submission(self) -> dict[str, Any]:
        """Return the submission that names this process; it is written right now."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            submission = self._run.submission
            if submission.get("supervisor", {}).get("pid") == os.getpid():
                return submission
            time.sleep(0.005)
        message = f"{self._paths.submission} never named this supervisor; launch again."
        raise StoreError(message)

    def _take_descriptions(self) -> None:
        if found := self._description.take():
            self._record.update(found)
            self._write_record()

    def _start_sampler(self) -> SamplerProcess:
        with self._paths.supervisor_log(self._attempt).open("ab") as log:
            return start_sampler(
                self._paths.system(hostname()),
                gpu_uuids=self._submission["devices"],
                process_roots=[rank.identity.pid for rank in self._ranks],
                stderr=log,
            )

    def _pids_of_all_attempts(self) -> list[int]:
        known = map(read_json, self._paths.process_files())
        return [identity["pid"] for identity in known if identity]

    def _worker(self) -> dict[str, Any]:
        try:
            return read_json(self._paths.worker) or {}
        except StoreError as error:
            self._store_error = self._store_error or error
            return {}

    def _set_state(self, state: RunState, **details: Any) -> None:
        self._record["state"] = state
        if state is RunState.RUNNING:
            self._record["time"]["running"] = utc_now()
        if state.is_final:
            ended = self._record["time"]["ended"] = utc_now()
            attempts = self._record["attempts"]
            attempts.append(
                {
                    "number": self._attempt,
                    "state": state,
                    "started": self._record["time"]["started"],
                    "ended": ended,
                    "ranks": [rank.to_dict() for rank in self._ranks],
                }
            )
        self._event(state.value, **details)
        self._write_record()

    def _event(self, event: str, **details: Any) -> None:
        line = {"time": utc_now(), "attempt": self._attempt, "event": event, **details}
        self._write(lambda: self._events.write(line))

    def _write_record(self) -> None:
        self._write(lambda: write_json(self._paths.record, self._record))

    def _write(self, write: Callable[[], None]) -> None:
        """Write; a full disk costs the reserve first, and the run only then."""
        try:
            try:
                write()
            except StoreError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self._store_error = self._store_error or error
                self._paths.reserve.unlink(missing_ok=True)
                write()
        except StoreError as error:
            self._store_error = self._store_error or error
            sys.stderr.write(f"{error}\n")
            sys.stderr.flush()


def _wait_for_orphans() -> None:
    """Collect every adopted child that has ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def main() -> None:
    """Supervise the run whose folder is the only argument."""
    # The shell that started this process made it ignore interrupts; the ranks should
    # start with ordinary signals.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    if os.getpgrp() != os.getpid():
        os.setsid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    Supervisor(Path(sys.argv[1])).run()


if __name__ == "__main__":
    main()
