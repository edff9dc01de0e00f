"""`python -m nbkit.launch.manual.job RUN_DIR`: supervisor of a run started manually.

It does what the supervisor of one machine does, on the host that launched; but users
start the ranks, on any hosts. So it waits for them instead of for devices, and knows
them by files (`nbkit.launch.manual.ranks`).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.errors import StoreError
from nbkit.launch.manual.ranks import ManualRanks, TorchrunNodes, give_orders
from nbkit.launch.supervision.attempts import run_attempts, write_final_record
from nbkit.launch.supervision.journal import Journal
from nbkit.launch.supervision.requests import StopRequests
from nbkit.launch.supervision.supervisor import (
    become_subreaper,
    end_before_ranks,
    names_this_process,
    supervise,
)
from nbkit.store.paths import RunPaths
from nbkit.store.processes import hostname
from nbkit.store.record import RunState, utc_now
from nbkit.store.stored_runs import StoredRun

_POLL_SECONDS = 0.2


class ManualRequests(StopRequests):
    """As `StopRequests`; to end a host's torchrun is a request to end the run, too."""

    def __init__(
        self, paths: RunPaths, submission: dict[str, Any], nodes: TorchrunNodes
    ) -> None:
        super().__init__(paths, submission)
        self._nodes = nodes

    def look(self) -> list[dict[str, Any]]:
        """Return the requests that stand now."""
        requests = super().look()
        if (by := self._nodes.signalled) is not None:
            requests.append({"by": by, "grace_seconds": self._grace_seconds})
        return requests


class ManualDevices:
    """What the hosts have on which users start the ranks: nbkit holds none of it."""

    def __init__(self, submission: dict[str, Any], nodes: TorchrunNodes) -> None:
        self._submission = submission
        self._nodes = nodes

    @property
    def system_names(self) -> list[str]:
        """Names of the files of samples, one for each host."""
        return [node.name for node in self._nodes.started]

    @property
    def is_here(self) -> bool:
        """Whether ranks have started on this host."""
        return any(node.report["host"] == hostname() for node in self._nodes.started)

    def facts(self, config: ExperimentConfig, root: Path) -> dict[str, Any]:
        """Return what the record's ``launch`` says of them."""
        return {"torchrun": self._submission["torchrun_line"]}

    def ranks(self, run: StoredRun, attempt: int) -> ManualRanks:
        """Return the ranks of the attempt, which users have started."""
        return ManualRanks(run.config, run.paths, attempt, self._nodes)


def supervise_manual(root: Path) -> None:
    """Supervise a run whose ranks users start."""
    paths = RunPaths(root)

    def work(journal: Journal, submission: dict[str, Any]) -> None:
        nodes = TorchrunNodes(paths, journal.attempt)
        requests = ManualRequests(paths, submission, nodes)
        try:
            if stop := wait_for_torchrun(root, journal, nodes, requests):
                end_before_ranks(journal, stop)
                return
            devices = ManualDevices(submission, nodes)
            ended = run_attempts(root, journal, submission, devices, requests)
            write_final_record(root, journal, devices, ended)
        finally:
            # A torchrun that still waits for others ends by this.
            give_orders(paths, journal.attempt, ["kill"])

    supervise(paths, names_this_process, work)


def wait_for_torchrun(
    root: Path, journal: Journal, nodes: TorchrunNodes, requests: StopRequests
) -> dict[str, Any] | None:
    """Wait until a host has started ranks; return the request to stop before that."""
    num_hosts = StoredRun(root).config.nnodes
    since = utc_now()
    while not nodes.started:
        if standing := requests.look():
            return standing[0]
        _note(journal, num_hosts, nodes.ready, since)
        journal.write_heartbeat()
        if journal.error is not None:
            raise journal.error
        time.sleep(_POLL_SECONDS)
        with contextlib.suppress(StoreError):  # its server may be away for a moment
            nodes.look()
    return None


def _note(journal: Journal, num_hosts: int, ready: list[str], since: str) -> None:
    """Write for which hosts the run waits, where that is new."""
    reason = f"waiting for torchrun on {num_hosts} host{'s' if num_hosts > 1 else ''}"
    if ready:
        reason += f"; {len(ready)} running ({', '.join(ready)})"
    else:
        reason += ": paste run.torchrun_line there"
    queue = {"position": None, "length": None, "reason": reason, "since": since}
    if journal.record["queue"] != queue:
        journal.record["queue"] = queue
        journal.set_state(RunState.QUEUED, **queue)


def main() -> None:
    """Supervise the run whose folder is the argument."""
    become_subreaper()
    if os.getpgrp() != os.getpid():
        os.setsid()
    supervise_manual(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
