"""Attempts of a run, from the first start of its ranks to the final record."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any, Protocol

from nbkit.config import ExperimentConfig
from nbkit.launch.code.provenance import ProvenanceThread
from nbkit.launch.supervision.attempt import Attempt, RankGroup
from nbkit.launch.supervision.journal import Journal
from nbkit.launch.supervision.leftovers import (
    descendants,
    end_leftovers,
    processes_of_run,
)
from nbkit.launch.supervision.requests import StopRequests
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState, read_json
from nbkit.store.stored_runs import StoredRun
from nbkit.telemetry.system import summarise_systems

_DESCRIBE_SECONDS = 2.0
_NO_NEW_TRY = {
    "config",
    "device",
    "launch",
    "node",
    "nonfinite",
    "store",
    "supervisor",
}
"""Kinds of causes that another attempt would only repeat."""


class HeldDevices(Protocol):
    """What a run computes on, held over all its attempts."""

    @property
    def system_names(self) -> list[str]:
        """Names of the files of samples, one for each node."""
        ...

    @property
    def is_here(self) -> bool:
        """Whether ranks have started on this host."""
        ...

    def facts(self, config: ExperimentConfig, root: Path) -> dict[str, Any]:
        """Return what the record's ``launch`` says of them."""
        ...

    def ranks(self, run: StoredRun, attempt: int) -> RankGroup:
        """Return the ranks of an attempt, not started yet."""
        ...


def run_attempts(
    root: Path,
    journal: Journal,
    submission: dict[str, Any],
    devices: HeldDevices,
    requests: StopRequests,
    *,
    adopts: bool = False,
) -> tuple[RunState, dict[str, Any] | None]:
    """Run attempts until one finishes, is stopped, or no restart is left.

    With `adopts`, this process is the parent of the ranks, and of what they have left.
    """
    run = StoredRun(root)
    journal.record["launch"].update(devices.facts(run.config, root))
    description = ProvenanceThread(run.config, run.paths, Path(submission["cwd"]))

    def take_descriptions() -> None:
        if description.ident is None:
            description.start()  # after the ranks, which a user waits for
        if descriptions := description.take():
            if not devices.is_here:
                descriptions.pop("machine", None)
            journal.record.update(descriptions)
            journal.write_record()

    restarts_left = run.config.max_restarts
    while True:
        journal.begin()
        group = devices.ranks(run, journal.attempt)
        attempt = Attempt(run, journal, group, requests, take_descriptions)
        attempt.run()
        # Its git must have ended by itself before leftovers are killed: a diff cut
        # short would pass for a whole one.
        description.finish(_DESCRIBE_SECONDS)
        take_descriptions()
        state, cause = attempt.verdict()
        pids = {rank.to_dict()["pid"] for rank in attempt.ranks}
        detached_go_on = state is RunState.FINISHED and None not in pids
        sessions = pids if detached_go_on else None
        all_gone = _end_leftovers(run, journal, sessions, adopts=adopts)
        ranks = [rank.to_dict() for rank in attempt.ranks]
        journal.note_attempt(state, cause, attempt.started, ranks)
        if state is not RunState.FAILED or cause is None or requests.look():
            break
        may_pass = cause.get("may_pass", cause["kind"] not in _NO_NEW_TRY)
        if not (may_pass and restarts_left and all_gone):
            break
        restarts_left -= 1
        journal.event("restart", cause=_brief(cause), restarts_left=restarts_left)
        journal.record["attempt"] += 1
    return state, cause


def write_final_record(
    root: Path,
    journal: Journal,
    devices: HeldDevices,
    ended: tuple[RunState, dict[str, Any] | None],
    *,
    is_hurried: bool = False,
) -> None:
    """Write how a run ended, why, and what its samples add up to."""
    state, cause = ended
    journal.record["cause"] = cause
    if is_hurried:
        journal.set_state(state, cause=_brief(cause))
    journal.write_heartbeat()
    _note_numbers(StoredRun(root), journal, devices)
    if is_hurried:
        journal.write_record()
    else:
        journal.set_state(state, cause=_brief(cause))


def _brief(cause: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a cause without its stacks, which may be many: the record has them."""
    return cause and {key: value for key, value in cause.items() if key != "stacks"}


def _note_numbers(run: StoredRun, journal: Journal, devices: HeldDevices) -> None:
    """Put into the record what ranks and samplers have written."""
    try:
        journal.record["worker"] = run.worker or None
        pids = [
            identity["pid"]
            for identity in map(read_json, run.paths.process_files())
            if identity
        ]
        files = {name: run.paths.system(name) for name in devices.system_names}
        # A job that was started again may have had other nodes before.
        for path in run.paths.system_files():
            files.setdefault(path.stem, path)
        journal.record["system"] = summarise_systems(files, pids)
    except Exception:  # noqa: BLE001 - the last word is written even so
        traceback.print_exc()


def _end_leftovers(
    run: StoredRun, journal: Journal, sessions: set[int] | None, *, adopts: bool
) -> bool:
    """Leave no process of the run but this one, and no zombie; say if that is so.

    With `sessions`, what ranks have detached from these goes on, as under torchrun.
    """
    me = ProcessIdentity.of()

    def find() -> set[ProcessIdentity]:
        adopted = descendants(run.run_id) if adopts else set()
        return set(processes_of_run(run.paths, sessions, adopted)) - {me}

    ended, remaining = end_leftovers(find)
    if ended:
        journal.event("leftovers_ended", processes=ended)
    if remaining:
        journal.event("leftovers", pids=sorted(process.pid for process in remaining))
    return not remaining
