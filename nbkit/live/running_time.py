"""Running time of a run: one definition for views, tables and pictures."""

from __future__ import annotations

from typing import Any, NamedTuple

from nbkit.store.record import RunState, of_newest_attempt, unix_seconds

RUNNING_TIME = (
    "running time of all attempts, excluding time in the queue and between attempts"
)
"""What the duration of a run means: a tooltip."""

_NOT_UNDER_WAY = {state for state in RunState if state.is_final} | {RunState.QUEUED}


class RunningTime(NamedTuple):
    """How long a run had its ranks."""

    ended_seconds: float | None
    """In attempts that have ended, summed; None where that is not known, or where no
    attempt has begun."""
    since: float | None
    """When the attempt under way began, Unix time in seconds; None without one."""

    def at(self, now: float) -> float | None:
        """Return all of it at a moment, in seconds."""
        if self.since is None:
            return self.ended_seconds
        return (self.ended_seconds or 0.0) + max(0.0, now - self.since)


def running_time(
    record: dict[str, Any], submission: dict[str, Any], state: RunState
) -> RunningTime:
    """Return how long a run has run, as its record tells it."""
    newest = of_newest_attempt(record, submission) if submission else record
    times = newest.get("time") or {}
    began = unix(times.get("started") or times.get("running"))
    spans = [
        (start, end)
        for attempt in record.get("attempts") or ()
        if (start := unix(attempt.get("started"))) is not None
        and (end := unix(attempt.get("ended"))) is not None
    ]
    ended = sum(end - start for start, end in spans) if spans else None
    # A run that is started over keeps its devices: its next attempt begins where the
    # one before has ended.
    behind = max((end for _, end in spans), default=None)
    if began is not None and behind is not None:
        began = max(began, behind)
    if not state.is_final:
        # A requeued run may start before its new supervisor has written.
        goes_on = _NOT_UNDER_WAY.isdisjoint({state, newest.get("state")})
        return RunningTime(ended, began if goes_on else None)
    if times.get("started") and not times.get("ended"):
        return RunningTime(None, None)
    end = unix(times.get("ended"))
    if not spans and began is not None and end is not None:
        ended = end - began
    return RunningTime(ended, None)


def unix(time: str | None) -> float | None:
    """Return a time of a record (ISO 8601) as Unix time in seconds.

    None where it says none, or says what is not a time.
    """
    try:
        return unix_seconds(time or "")
    except (TypeError, ValueError):
        return None
