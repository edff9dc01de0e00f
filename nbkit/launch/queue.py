"""A supervisor's wait for its devices; it loads little, since many may wait at once."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

from nbkit.launch.gpu_pool import Claim, Lease, Waiting
from nbkit.launch.journal import Journal
from nbkit.launch.requests import StopRequests
from nbkit.store.record import RunState

__all__ = ["Place", "wait_for_devices"]

_POLL_SECONDS = 0.1
_LONGEST_POLL_SECONDS = 2.0
_LOOK_SECONDS = 2.0
"""Between two questions to the driver, which take up to a second each."""


class Place:
    """The devices of a run, and its place in the queue before it had them."""

    def __init__(self, claim: Claim, lease: Lease) -> None:
        self._claim = claim
        self._lease: Lease | None = lease
        self.gpus = lease.devices if claim.kind == "cuda" else ()
        """UUIDs of GPUs or MIG instances to compute on, by local rank."""
        self.replayed = lease.devices if claim.kind == "replay" else ()
        """UUIDs of replayed GPUs, of which the ranks know nothing."""
        self.descriptors = lease.descriptors
        """Files that keep the devices held, for the ranks."""
        self.shared = lease.shared
        """Whether ranks share a device with each other or with another run."""

    def leave(self) -> None:
        """Let the devices go; a second call does nothing."""
        if self._lease is not None:
            self._lease.release()
            self._claim.close()
            self._lease = None


def wait_for_devices(
    journal: Journal, claim: Claim, owner_pid: int, requests: StopRequests
) -> Place | dict[str, Any]:
    """Return the devices of a run, or the request to stop that came before them.

    Parameters
    ----------
    journal
        Where the place in the queue is written.
    claim
        What is wanted; its place in the queue.
    owner_pid
        Whose processes on a GPU do not count.
    requests
        Who wants the run to stop.

    Raises
    ------
    DeviceError
        If the pool cannot be used.
    """
    look = _Strangers(owner_pid).look if claim.kind == "cuda" else None
    while True:
        if standing := requests.look():
            claim.close()
            return standing[0]
        answer = claim.attempt(look)
        if isinstance(answer, Lease):
            journal.record["queue"] = None
            return Place(claim, answer)
        _tell(journal, answer, claim.since)
        if journal.error is not None:
            claim.close()
            raise journal.error
        # Who is next looks often; a long queue should not keep a processor busy.
        time.sleep(min(_POLL_SECONDS * answer.position, _LONGEST_POLL_SECONDS))


def _tell(journal: Journal, answer: Waiting, since: str) -> None:
    queue = {
        "position": answer.position,
        "length": answer.length,
        "reason": answer.reason,
        "since": since,
    }
    if queue != journal.record["queue"]:
        journal.record["queue"] = queue
        journal.set_state(RunState.QUEUED, **queue)


class _Strangers:
    """Processes that use GPUs and know nothing of the pool."""

    def __init__(self, owner_pid: int) -> None:
        self._owner_pid = owner_pid
        self._known: dict[str, str] = {}
        self._asked_at = float("-inf")

    def look(self, names: Collection[str]) -> dict[str, str]:
        """Return what to say of each device that one of them uses."""
        from nbkit.telemetry.occupants import ask_occupants

        now = time.monotonic()
        if now - self._asked_at > _LOOK_SECONDS:
            try:
                self._known = ask_occupants(names, but=self._owner_pid)
            except TimeoutError:
                # Whoever started ranks now would see them hang too.
                self._known = dict.fromkeys(names, "a driver that does not answer")
            self._asked_at = time.monotonic()
        return self._known
