"""Writer of ``record.json`` and ``events.jsonl`` in a supervisor.

It loads little: many supervisors may wait in the queue together.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from nbkit.clock import continue_clock
from nbkit.errors import StoreError
from nbkit.reading import is_gone, retry_io
from nbkit.store.metrics import JsonLinesWriter
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import (
    RECORD_SCHEMA,
    RunState,
    iso,
    read_json,
    utc_now,
    write_json,
)
from nbkit.store.redaction import redacted

_RESERVE_BYTES = 256 * 1024
_SIGN_SECONDS = 30.0
_DESCRIBED = ("code", "environment", "machine", "storage", "worker", "system")
_FROM_SUBMISSION = (
    "engine",
    "owner",
    "on_owner_exit",
    "device_type",
    "cpus_per_rank",
    "argv",
    "cwd",
)


class Journal:
    """The record and the events of one run, by its only writer."""

    def __init__(self, paths: RunPaths, submission: dict[str, Any]) -> None:
        self._paths = paths
        self.record = retry_io(lambda: _first_record(paths, submission))
        self.error: StoreError | None = None
        """Why something could not be written or read, once; the run ends with it."""
        self._events = retry_io(lambda: JsonLinesWriter(paths.events))
        self._next_sign = 0.0
        try:
            paths.reserve.write_bytes(b"\0" * _RESERVE_BYTES)
        except OSError:
            paths.reserve.unlink(missing_ok=True)

    @property
    def attempt(self) -> int:
        """Number of the current attempt."""
        return self.record["attempt"]

    @property
    def state(self) -> RunState:
        """Where the run stands."""
        return RunState(self.record["state"])

    def set_state(self, state: RunState, **details: Any) -> None:
        """Write that the run has come to a state, with what to say in its event."""
        self.record["state"] = state
        if state is RunState.RUNNING:
            self.record["time"]["running"] = utc_now()
        if state.is_final:
            self.record["time"]["ended"] = utc_now()
        self.event(state.value, **details)
        self.write_record()

    def begin(self) -> None:
        """Write that an attempt begins: its devices are there."""
        self.record["queue"] = None
        self.record["time"]["started"] = self.record["time"]["started"] or utc_now()
        self.set_state(RunState.STARTING)

    def note_attempt(
        self,
        state: RunState,
        cause: dict[str, Any] | None,
        started: str | None,
        ranks: Sequence[dict[str, Any]] = (),
    ) -> None:
        """Keep how an attempt ended, for the next writing of the record."""
        self.record["attempts"].append(
            {
                "number": self.attempt,
                "state": state,
                "started": started,
                "ended": utc_now(),
                "message": None if cause is None else cause["message"],
                "ranks": list(ranks),
            }
        )

    def event(self, event: str, **details: Any) -> None:
        """Append an event."""
        details = redacted(details)
        line = {"time": utc_now(), "attempt": self.attempt, "event": event, **details}
        self._write(lambda: self._events.write(line))

    def write_heartbeat(self) -> None:
        """Write a sign of life now and then; end if the run was resumed elsewhere.

        It is an error of the journal if the folder of the run was removed.
        """
        if is_gone(self._paths.root):
            self.error = self.error or StoreError(f"{self._paths.root} was removed.")
        now = time.monotonic()
        if now < self._next_sign:
            return
        self._next_sign = now + _SIGN_SECONDS
        submission: dict[str, Any] = {}
        with suppress(OSError):
            os.utime(self._paths.record)
        with suppress(StoreError):  # a file server may not answer for some time
            submission = read_json(self._paths.submission) or {}
        submitted = submission.get("time", self.record["time"]["submitted"])
        if submitted != self.record["time"]["submitted"]:
            newest = submission.get("supervisor") or {}
            sys.stderr.write(f"the run was resumed by another supervisor ({newest})\n")
            sys.stderr.flush()
            os._exit(1)

    def write_record(self) -> None:
        """Replace the file of the record."""
        # What an exception says, or a device's user is called, may hold a secret.
        self._write(lambda: write_json(self._paths.record, redacted(self.record)))

    def close(self) -> None:
        """Write no more."""
        self._paths.reserve.unlink(missing_ok=True)
        self._events.close()

    def _write(self, write: Callable[[], None]) -> None:
        """Write; a full disk costs the reserve first, and the run only then."""
        try:
            try:
                # A run that has failed must not be kept from ending.
                write() if self.error else retry_io(write)
            except StoreError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self.error = self.error or error
                self._paths.reserve.unlink(missing_ok=True)
                write()
        except StoreError as error:
            self.error = self.error or error
            sys.stderr.write(f"{error}\n")
            sys.stderr.flush()


def _earlier_attempts(paths: RunPaths, record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return how the attempts of a record ended; a lost one at its last heartbeat."""
    attempts: list[dict[str, Any]] = record.get("attempts", [])
    started = record.get("time", {}).get("started")
    # A requeue keeps when its last attempt began, of which it has written how it ended.
    if started is None or record.get("queue") or RunState(record["state"]).is_final:
        return attempts
    begin = max([started, *(attempt["ended"] for attempt in attempts)])
    lost = {
        "number": record["attempt"],
        "state": RunState.LOST,
        "started": begin,
        "ended": max(begin, iso(paths.record.stat().st_mtime)),
        "message": None,
        "ranks": [],
    }
    return [*attempts, lost]


def _first_record(paths: RunPaths, submission: dict[str, Any]) -> dict[str, Any]:
    """Return the record of an attempt that comes now; None is what is unknown yet."""
    config = read_json(paths.config) or {}
    earlier = read_json(paths.record) or {}
    launch = earlier.get("launch", {})
    return {
        "schema": RECORD_SCHEMA,
        "run_id": paths.run_id,
        "name": submission["name"],
        "state": RunState.STARTING,
        "cause": None,
        "attempt": submission["attempt"],
        "supervisor": ProcessIdentity.of().to_dict(),
        # The processes of other nodes begin with the time of today.
        "clock": continue_clock(
            earlier.get("clock") if config.get("nnodes") == 1 else None
        ),
        "time": {
            "submitted": submission["time"],
            "started": None,
            "running": None,
            "ended": None,
        },
        "queue": None,
        "launch": {
            **{key: submission[key] for key in _FROM_SUBMISSION},
            "torchrun": launch.get("torchrun"),
            "devices": [],
            "oversubscribed": None,
            "replayed": submission["request"]["kind"] == "replay",
        },
        "parameter_sources": submission["parameter_sources"],
        "tags": submission["tags"],
        "determinism": {
            "seed": config.get("seed"),
            "deterministic": config.get("deterministic"),
        },
        "attempts": _earlier_attempts(paths, earlier),
        # Of the attempt before, until this one's are known: it may end in the queue.
        **{part: earlier.get(part) for part in _DESCRIBED},
    }
