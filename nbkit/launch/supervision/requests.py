"""Stop conditions of a supervisor: a request, or the end of the owner."""

from __future__ import annotations

import datetime
import signal
from typing import Any

from nbkit.errors import ConfigError, StoreError
from nbkit.reading import is_transient
from nbkit.store.paths import RunPaths
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import read_json

LONGEST_GRACE_SECONDS = 86_400.0
"""As ``stop_grace_seconds`` of a configuration may be."""

_OWNER_EXIT = "owner exit"


class StopRequests:
    """Looks for requests to stop; from its making on, SIGTERM is one."""

    def __init__(self, paths: RunPaths, submission: dict[str, Any]) -> None:
        self._paths = paths
        self._grace_seconds: float = submission["stop_grace_seconds"]
        self._owner: ProcessIdentity | None = None
        owner = ProcessIdentity.from_dict(submission["owner"])
        if submission["on_owner_exit"] == "stop" and owner.is_here:
            self._owner = owner
        self._terminated_by: str | None = None
        signal.signal(signal.SIGTERM, lambda *_: self.note_sigterm())

    def look(self) -> list[dict[str, Any]]:
        """Return the requests that stand now: ``by`` and ``grace_seconds`` of each."""
        if self._owner is not None and not self._owner.is_alive():
            self._terminated_by = self._terminated_by or _OWNER_EXIT
        standing = None
        try:
            standing = read_json(self._paths.stop)
        except StoreError as error:
            if not is_transient(error):
                raise
        requests = [] if standing is None else [standing]
        if self._terminated_by is not None:
            by, grace_seconds = self._terminated_by, self._grace_seconds
            requests.append({"by": by, "grace_seconds": grace_seconds})
        return requests

    def note_sigterm(self) -> None:
        """Take SIGTERM for a request to stop."""
        self._terminated_by = "a signal to the supervisor (SIGTERM)"


def checked_grace(grace_seconds: float) -> float:
    """Return a time for a graceful stop."""
    if not 0 <= grace_seconds <= LONGEST_GRACE_SECONDS:
        message = (
            f"grace_seconds={grace_seconds:g} is out of range. Use 0 to "
            f"{LONGEST_GRACE_SECONDS:,.0f} (one day)."
        )
        raise ConfigError(message)
    return grace_seconds


def deadline(request: dict[str, Any]) -> datetime.datetime:
    """Return when a request to stop turns to force."""
    requested = datetime.datetime.fromisoformat(request["time"])
    return requested + datetime.timedelta(seconds=request["grace_seconds"])
