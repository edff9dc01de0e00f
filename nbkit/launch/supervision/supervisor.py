"""The process that owns a run from its queue to its end.

Started as ``python -m nbkit.launch.supervision.supervisor RUN_DIR FD``.

1. Leave every session and process group; adopt orphans (child subreaper).
2. Wait for devices, and hold them.
3. Start the ranks, then the sampler; describe code, environment and machine meanwhile.
4. Watch: ranks' ends, the owner's end, requests to stop, positions of the ranks.
5. End everything: what still runs is killed, and all are waited for. Start over
   if a rank failed and restarts are left.
6. Write the last record: state, cause, and what only the ranks knew.

It never imports torch, and what the last four need only when it is their turn: fifty
supervisors may wait. It is the only writer of ``record.json`` and ``events.jsonl``.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbkit.clock import start_clock
from nbkit.errors import ConfigError, DeviceError, StoreError
from nbkit.launch.devices.pool import Lease, QueueTicket
from nbkit.launch.supervision.journal import Journal
from nbkit.launch.supervision.queue import wait_for_devices
from nbkit.launch.supervision.requests import StopRequests
from nbkit.reading import is_gone, retry_io
from nbkit.store.network import refresh_nfs_cache
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity, start_problem
from nbkit.store.record import RunState, read_json

_PR_SET_CHILD_SUBREAPER = 36
_SUBMISSION_SECONDS = 120.0
"""More than a network file system takes to show a file to another host."""
_BRISK_SECONDS = 1.0
_BRISK_POLL_SECONDS, _POLL_SECONDS = 0.005, 0.5
_KINDS = {StoreError: "store", DeviceError: "device", ConfigError: "config"}


SupervisedWork = Callable[[Journal, dict[str, Any]], None]


def supervise(
    paths: RunPaths,
    is_mine: Callable[[dict[str, Any]], bool],
    work: SupervisedWork,
    attempt: int = 0,
) -> None:
    """Do a supervisor's work, with a last word whatever happens."""
    journal: Journal | None = None
    try:
        submission = await_submission(paths, is_mine)
        submission["attempt"] = max(submission["attempt"], attempt)
        journal = Journal(paths, submission)
        journal.write_record()
        work(journal, submission)
    except Exception as error:  # noqa: BLE001 - a supervisor always has a last word
        traceback.print_exc()
        if journal is not None:
            kind = _KINDS.get(type(error), "supervisor")
            is_expected = kind != "supervisor"
            what = str(error) if is_expected else start_problem(error)
            what = what or f"the supervisor failed: {error!r}"
            _end(journal, RunState.FAILED, kind, what)
    finally:
        if journal is not None:
            journal.close()


def end_before_ranks(journal: Journal, request: dict[str, Any]) -> None:
    """Write the last word of a run that was stopped before its ranks were started."""
    from nbkit.launch.supervision.cause import stopped_by

    what = stopped_by(request, "before its ranks were started")
    _end(journal, RunState.STOPPED, "stopped", what, by=request["by"], forced=False)


def names_this_process(submission: dict[str, Any]) -> bool:
    """Return whether a submission's supervisor is this process."""
    return (submission.get("supervisor") or {}).get("pid") == os.getpid()


def supervise_here(root: Path, claim_fd: int) -> None:
    """Supervise a run of this machine."""
    paths = RunPaths(root)
    claim = QueueTicket(claim_fd)
    lease: Lease | dict[str, Any] | None = None

    def work(journal: Journal, submission: dict[str, Any]) -> None:
        nonlocal lease
        requests = StopRequests(paths, submission)
        owner = ProcessIdentity.from_dict(submission["owner"])
        lease = wait_for_devices(root, journal, claim, owner, requests)
        if not isinstance(lease, Lease):
            end_before_ranks(journal, lease)
            return
        from nbkit.launch.supervision.attempts import run_attempts, write_final_record
        from nbkit.launch.supervision.local_ranks import LocalDevices

        devices = LocalDevices(lease, submission)
        ended = run_attempts(root, journal, submission, devices, requests, adopts=True)
        lease.release()
        claim.close()
        write_final_record(root, journal, devices, ended)

    try:
        claim.take_over()
        supervise(paths, names_this_process, work)
    finally:
        if isinstance(lease, Lease):
            lease.release()
        claim.close()


def _end(
    journal: Journal, state: RunState, kind: str, message: str, **more: Any
) -> None:
    """Write the last word of a run that ended without a verdict."""
    from nbkit.launch.supervision.cause import make_cause

    cause = make_cause(kind, message) | more
    journal.record["queue"] = None
    journal.record["cause"] = cause
    journal.note_attempt(state, cause, journal.record["time"]["started"])
    journal.set_state(state, cause=cause)


def await_submission(
    paths: RunPaths, is_mine: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Return the submission that names this process; it is written right now."""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < _SUBMISSION_SECONDS:
        refresh_nfs_cache(paths.root)
        submission = retry_io(lambda: read_json(paths.submission)) or {}
        if is_mine(submission):
            return submission
        if is_gone(paths.root):
            break
        is_brisk = waited < _BRISK_SECONDS
        time.sleep(_BRISK_POLL_SECONDS if is_brisk else _POLL_SECONDS)
    message = f"{paths.submission} does not name this supervisor. Launch again."
    raise StoreError(message)


def become_subreaper() -> None:
    """Make this process fit to own a run: orphans of it become children of this one."""
    # The shell that started this process may have made it ignore interrupts; the ranks
    # should start with ordinary signals.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    start_clock()


def main() -> None:
    """Supervise the run whose folder and place in the queue are the arguments."""
    become_subreaper()
    if os.getpgrp() != os.getpid():
        os.setsid()
    supervise_here(Path(sys.argv[1]), int(sys.argv[2]))


if __name__ == "__main__":
    main()
