"""Python stacks of a run's ranks, which keep running."""

from __future__ import annotations

import time

from nbkit.errors import RunError
from nbkit.launch.supervision.cause import read_stacks
from nbkit.launch.supervision.leftovers import marked_processes
from nbkit.store.processes import ProcessIdentity, print_stacks, prints_stacks
from nbkit.store.record import read_json
from nbkit.store.stored_runs import StoredRun

_ANSWER_SECONDS = 5.0
_SETTLED_SECONDS = 0.2
"""A stack that has not grown for so long is complete."""


def stacks(run: StoredRun) -> dict[int, str]:
    """Return the stacks of the ranks on this host, by rank."""
    pids = _pids(run)
    logs = {rank: run.paths.rank(run.attempt, rank).stderr for rank in pids}
    sizes = {rank: log.stat().st_size for rank, log in logs.items()}
    print_stacks(list(pids.values()), collectives=False)
    deadline = time.monotonic() + _ANSWER_SECONDS
    before: dict[int, str] = {}
    while True:
        time.sleep(_SETTLED_SECONDS)
        texts = {rank: read_stacks(logs[rank], sizes[rank], run.paths) for rank in pids}
        is_complete = texts == before and all(texts.values())
        if is_complete or time.monotonic() > deadline:
            return texts
        before = texts


def _pids(run: StoredRun) -> dict[int, int]:
    """Return the process ids of the ranks that can answer.

    Their own environment says that they are the run's: its files may be of others.
    """
    marked = {process for name, _, process in marked_processes() if name == run.run_id}
    ranks: dict[int, ProcessIdentity] = {}
    for rank in range(run.config.world_size):
        if identity := read_json(run.paths.rank(run.attempt, rank).process):
            ranks[rank] = ProcessIdentity.from_dict(identity)
    pids = {
        rank: process.pid
        for rank, process in ranks.items()
        if process in marked and prints_stacks(process.pid)
    }
    if not pids:
        hosts = {process.host for process in ranks.values()}
        where = f" (started on {', '.join(sorted(hosts))})" if hosts else ""
        message = (
            f"run {run.run_id} ({run.state}) has no rank of this user on this host"
            f"{where}. Read the stacks while the run is active, on a host of its ranks "
            "and as the user who launched it."
        )
        raise RunError(message)
    return pids
