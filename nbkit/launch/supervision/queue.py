"""A supervisor's wait for its devices; few imports, since many wait together."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nbkit.launch.devices.pool import Lease, QueueTicket, Waiting
from nbkit.launch.supervision.journal import Journal
from nbkit.launch.supervision.requests import StopRequests
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState

_POLL_SECONDS = 0.1
_LONGEST_POLL_SECONDS = 2.0
_LOOK_SECONDS = 0.5
_LONGEST_LOOK_SECONDS = 8.0
"""Between two questions to the driver, which take up to a second each: often at first,
since a rank that just ended may hold its memory for a moment."""
_STARTING = "a driver that is initializing (nvidia-smi -pm 1 keeps it initialized)"


def wait_for_devices(
    root: Path,
    journal: Journal,
    claim: QueueTicket,
    owner: ProcessIdentity,
    requests: StopRequests,
) -> Lease | dict[str, Any]:
    """Return the devices of a run, or the request to stop that came before them."""
    claim.call(journal.record["name"])
    strangers = _Strangers(owner) if claim.kind == "cuda" else None
    try:
        return _wait(root, journal, claim, strangers, requests)
    finally:
        if strangers is not None:
            strangers.close()


def _wait(
    root: Path,
    journal: Journal,
    claim: QueueTicket,
    strangers: _Strangers | None,
    requests: StopRequests,
) -> Lease | dict[str, Any]:
    look = None if strangers is None else strangers.look
    position = 1
    while True:
        if standing := requests.look():
            return standing[0]
        answer = claim.attempt(look)
        if (
            isinstance(answer, Waiting)
            and strangers is not None
            and strangers.unverified_devices
        ):
            # Else a kernel in a container would wait for itself, for ever.
            answer = claim.attempt(strangers.look_at_certain)
        if isinstance(answer, Lease):
            if strangers is not None:
                unverified_devices = strangers.unverified_devices.items()
                taken = {
                    name: who
                    for name, who in unverified_devices
                    if name in answer.devices
                }
                if taken:
                    journal.record["launch"]["unverified_devices"] = taken
                    journal.event("unverified_devices", devices=taken)
            journal.record["queue"] = None
            return answer
        journal.write_heartbeat()
        if answer is not None:
            position = answer.position
            _note(journal, answer, claim.since)
        if journal.error is not None:
            raise journal.error
        # The next claim looks often; a long queue must not keep a processor busy.
        time.sleep(min(_POLL_SECONDS * position, _LONGEST_POLL_SECONDS))


def _note(journal: Journal, answer: Waiting, since: str) -> None:
    """Write the place in the queue; as an event only where the position is new."""
    before = journal.record["queue"]
    queue = {
        "position": answer.position,
        "length": answer.length,
        "reason": answer.reason,
        "since": since,
    }
    journal.record["queue"] = queue
    if before is None or before["position"] != answer.position:
        journal.set_state(RunState.QUEUED, **queue)
    elif before != queue:
        journal.write_record()


class _Strangers:
    """Processes that use GPUs and know nothing of the pool."""

    def __init__(self, owner: ProcessIdentity) -> None:
        from nbkit.telemetry.gpu_users import GpuUsers

        self._owner = owner
        self._gpu_users = GpuUsers()
        self._known: dict[str, str] = {}
        self._asked: set[str] = set()
        self._asked_at = float("-inf")
        self._patience_seconds = _LOOK_SECONDS

    @property
    def unverified_devices(self) -> Mapping[str, str]:
        """Who uses devices and is maybe the run's own kernel, by device."""
        unverified = self._gpu_users.unverified_devices
        return {name: who for name, who in self._known.items() if name in unverified}

    def look(self, names: Sequence[str]) -> dict[str, str]:
        """Return what to say of each device that one of them uses."""
        is_old = time.monotonic() - self._asked_at > self._patience_seconds
        is_new = self._asked != set(names)
        if not (is_old or is_new):
            return self._known
        # Another process may have its number by now.
        own = self._owner.pid if self._owner.is_alive() else None
        answer = self._gpu_users.ask(names, own)
        if answer is None:
            return dict.fromkeys(names, _STARTING) if is_new else self._known
        longer = min(2 * self._patience_seconds, _LONGEST_LOOK_SECONDS)
        self._patience_seconds = _LOOK_SECONDS if is_new else longer
        self._known = answer
        self._asked = set(names)
        self._asked_at = time.monotonic()
        return self._known

    def look_at_certain(self, names: Sequence[str]) -> dict[str, str]:
        """Return the same without unverified devices."""
        busy = self.look(names)
        return {
            name: who
            for name, who in busy.items()
            if name not in self.unverified_devices
        }

    def close(self) -> None:
        """End the process that asks the driver."""
        self._gpu_users.close()
