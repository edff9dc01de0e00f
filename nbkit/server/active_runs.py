"""Active runs of the store, of any age."""

from __future__ import annotations

import time
from contextlib import suppress

from nbkit.store.record import DAMAGE_ERRORS, RunState
from nbkit.store.run_list import list_runs

_ALL_SECONDS = 30.0
"""Between two checks of all runs: an old one may have been resumed."""
FIRST_SECONDS = 1.0
"""Before the first check: the newest runs are shown before it."""
MOST = 100
"""Each is read at every poll: of more, those without a sign of life are left out first,
then those in a queue."""
_LATER = {RunState.QUEUED: 1, RunState.UNKNOWN: 2}


class ActiveRuns:
    """Ids of the runs that had not ended when they were last looked at."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._all_again = time.monotonic() + FIRST_SECONDS

    def ids(self) -> set[str]:
        """Return them; from time to time all runs are checked."""
        if time.monotonic() >= self._all_again:
            # Also if it fails: the newest runs are shown all the same.
            self._all_again = time.monotonic() + _ALL_SECONDS
            with suppress(*DAMAGE_ERRORS):
                rows = [row for row in list_runs() if not row.state.is_final]
                rows.sort(key=lambda row: _LATER.get(row.state, 0))
                self._ids = {row.run_id for row in rows[:MOST]}
        return self._ids

    def note(self, run_id: str, state: RunState) -> None:
        """Take in where a run stands now."""
        if state.is_final:
            self._ids.discard(run_id)
        else:
            self._ids.add(run_id)
