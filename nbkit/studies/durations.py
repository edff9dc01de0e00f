"""Durations of process starts, from earlier runs."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.store.paths import RunPaths, runs_folder
from nbkit.store.processes import hostname
from nbkit.store.record import DAMAGE_ERRORS, read_json
from nbkit.store.stored_runs import list_run_names

_NEWEST = 200
"""Runs that are looked at: to open as many files takes a file server half a second."""
_LAUNCH_SECONDS = 0.4
"""To launch a run and to see its end, which its own times leave out."""
_OWN = ("name", "seed")
"""Fields that no time depends on."""


class StartTimes:
    """Duration of a start of each arm, in seconds."""

    def __init__(self, seconds: Mapping[str, float] | None = None) -> None:
        self._seconds = dict(seconds or {})

    def __or__(self, newer: StartTimes) -> StartTimes:
        return StartTimes(self._seconds | newer._seconds)

    def __setitem__(self, arm: str, seconds: float) -> None:
        self._seconds[arm] = seconds

    def take(self, arm: str, records: Iterable[Mapping[str, Any]]) -> None:
        """Add a start's runs if all finished; failed runs may take any time."""
        times = [
            start_seconds(record) if record.get("state") == "finished" else None
            for record in records
        ]
        known = [seconds for seconds in times if seconds is not None]
        if known and len(known) == len(times):
            self[arm] = max(known)

    def total(self, arms: Iterable[str]) -> float | None:
        """Return the total duration of starts of these arms; None if unknown.

        An arm without a start is assumed to take the mean time of the others.
        """
        if not self._seconds:
            return None
        usual = fmean(self._seconds.values())
        return sum(self._seconds.get(arm, usual) for arm in arms)


def run_span(
    record: Mapping[str, Any],
) -> tuple[datetime.datetime, datetime.datetime] | None:
    """Return when a run's processes started and ended."""
    times = record.get("time", {})
    started, ended = times.get("started"), times.get("ended")
    if started is None or ended is None:
        return None
    begin, end = map(datetime.datetime.fromisoformat, (started, ended))
    return begin, end


def run_seconds(record: Mapping[str, Any]) -> float | None:
    """Return how long a run's processes ran, in all attempts."""
    attempts = record.get("attempts") or ()
    times = [{"time": attempt} for attempt in attempts] if attempts[1:] else [record]
    spans = [span for span in map(run_span, times) if span is not None]
    return sum((end - begin).total_seconds() for begin, end in spans) if spans else None


def start_seconds(record: Mapping[str, Any]) -> float | None:
    """Return the duration of a start in a study from the duration of its run."""
    seconds = run_seconds(record)
    return None if seconds is None else seconds + _LAUNCH_SECONDS


def earlier_times(
    arms: Mapping[str, ExperimentConfig],
    concurrent: Iterable[str],
    environment: Mapping[str, str],
) -> StartTimes:
    """Return durations of finished runs of the same configurations on this host.

    Concurrent arms are estimated from concurrent runs.
    """
    together = set(concurrent)
    wanted = {
        arm: _identity(json.loads(config.to_json())) for arm, config in arms.items()
    }
    taken: dict[str, list[float]] = {}
    for run_id in list_run_names()[:_NEWEST]:
        paths = RunPaths(runs_folder() / run_id)
        try:
            identity = _identity(read_json(paths.config) or {})
            like = [arm for arm in wanted if wanted[arm] == identity]
            record = (read_json(paths.record) or {}) if like else {}
            if not _is_of_here(record, environment):
                continue
            seconds = start_seconds(record)
        except DAMAGE_ERRORS:
            continue  # others say how long it takes
        is_concurrent = bool((record.get("tags") or {}).get("concurrent"))
        for arm in like:
            if seconds is not None and is_concurrent == (arm in together):
                taken.setdefault(arm, []).append(seconds)
    return StartTimes({arm: fmean(seconds) for arm, seconds in taken.items()})


def _identity(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in _OWN}


def _is_of_here(record: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    variables = (record.get("environment") or {}).get("variables") or {}
    return (
        record.get("state") == "finished"
        and (record.get("machine") or {}).get("hostname") == hostname()
        and {name: variables.get(name) for name in environment} == {**environment}
    )
