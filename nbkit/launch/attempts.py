"""What a supervisor does once it has devices: attempts, and the last record."""

from __future__ import annotations

import os
import time
import traceback
from pathlib import Path
from typing import Any

from nbkit.launch.attempt import Attempt
from nbkit.launch.command import torchrun_line
from nbkit.launch.journal import Journal
from nbkit.launch.provenance import Description
from nbkit.launch.queue import Place
from nbkit.launch.requests import StopRequests
from nbkit.launch.sweep import kill, processes_of_run
from nbkit.store.processes import ProcessIdentity, hostname
from nbkit.store.record import RunState, read_json
from nbkit.store.runs import StoredRun
from nbkit.telemetry.system import summarise_system

__all__ = ["run_attempts"]

_DESCRIBE_SECONDS = 2.0
_NO_NEW_TRY = {"config", "device", "store", "supervisor"}
"""Kinds of causes that another attempt would only repeat."""


def run_attempts(
    root: Path,
    journal: Journal,
    submission: dict[str, Any],
    place: Place,
    requests: StopRequests,
) -> None:
    """Run attempts until one finishes, is stopped, or no restart is left.

    Parameters
    ----------
    root
        The run's folder.
    journal
        Where everything is written; closed by the caller.
    submission
        How the run was launched.
    place
        The devices, held over all attempts and let go before the last word.
    requests
        Who wants the run to stop.
    """
    run = StoredRun(root)
    launch = journal.record["launch"]
    launch["devices"] = list(place.gpus or place.replayed)
    launch["oversubscribed"] = place.shared
    launch["torchrun"] = torchrun_line(run.config, root, place.gpus)
    description = Description(run.config, run.paths, Path(submission["cwd"]))

    def take_descriptions() -> None:
        if description.ident is None:
            description.start()  # behind the ranks, which somebody waits for
        if found := description.take():
            journal.record.update(found)
            journal.write_record()

    restarts_left = run.config.max_restarts
    while True:
        journal.begin()
        attempt = Attempt(run, journal, submission, place, requests, take_descriptions)
        attempt.run()
        # Its git must have ended by itself before leftovers are killed: a diff cut
        # short would pass for a whole one.
        description.finish(_DESCRIBE_SECONDS)
        take_descriptions()
        all_gone = _end_leftovers(run, journal)
        state, cause = attempt.verdict()
        ranks = [rank.to_dict() for rank in attempt.ranks]
        journal.note_attempt(state, cause, attempt.started, ranks)
        again = state is RunState.FAILED and cause and cause["kind"] not in _NO_NEW_TRY
        if not (again and restarts_left and all_gone) or requests.look():
            break
        restarts_left -= 1
        journal.event("restart", cause=_brief(cause), restarts_left=restarts_left)
        journal.record["attempt"] += 1
    _write_numbers(run, journal)
    journal.record["cause"] = cause
    place.leave()
    journal.set_state(state, cause=_brief(cause))


def _brief(cause: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a cause without its stacks, which may be many: the record has them."""
    return cause and {key: value for key, value in cause.items() if key != "stacks"}


def _write_numbers(run: StoredRun, journal: Journal) -> None:
    """Put into the record what ranks and sampler have written."""
    try:
        journal.record["worker"] = run.worker or None
        pids = [
            identity["pid"]
            for identity in map(read_json, run.paths.process_files())
            if identity
        ]
        system = summarise_system(run.paths.system(hostname()), pids)
        journal.record["system"] = system
    except Exception:  # noqa: BLE001 - unknown is no reason to have no last word
        traceback.print_exc()


def _end_leftovers(run: StoredRun, journal: Journal) -> bool:
    """Leave no process of the run but this one, and no zombie; say if that is so."""
    me = ProcessIdentity.of()
    deadline = time.monotonic() + 5
    while left := [one for one in processes_of_run(run.paths) if one != me]:
        for process in left:
            kill(process)
        _wait_for_orphans()
        if time.monotonic() > deadline:
            journal.event("leftovers", pids=[process.pid for process in left])
            return False
        time.sleep(0.02)
    _wait_for_orphans()
    return True


def _wait_for_orphans() -> None:
    """Collect every adopted child that has ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
