"""How long the process starts of a study will take, by runs that have ended."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from nbkit.config import ExperimentConfig
from nbkit.statistics import duration_in_words
from nbkit.store.paths import RunPaths, runs_folder
from nbkit.store.processes import hostname
from nbkit.store.record import DAMAGE_ERRORS, read_json
from nbkit.store.stored_runs import list_run_names

_NEWEST = 200
"""Runs that are looked at: to open as many files takes a file server half a second."""
_OWN = ("name", "seed")
"""Fields that no time depends on."""

Arms = tuple[str, ...]
"""Of one start: several that start together, usually one."""


def estimated_seconds(
    starts: Sequence[Arms], taken: Mapping[Arms, Sequence[float]]
) -> float | None:
    """Return how long starts take, one after the other; None if nothing is known.

    Parameters
    ----------
    starts
        The arms of each.
    taken
        Seconds of starts that have ended, by their arms. Arms without any take as long
        as those that come again: what runs a single time is of another kind.
    """
    known = {arms: fmean(seconds) for arms, seconds in taken.items() if seconds}
    again = [one for arms, one in known.items() if starts.count(arms) > 1]
    usual = again or [*known.values()]
    if starts and not usual:
        return None
    return sum(known.get(arms, fmean(usual)) for arms in starts)


def estimate_in_words(seconds: float | None) -> str:
    """Return what a study is estimated to take, for its progress; empty if unknown."""
    if not seconds:
        return ""
    return f"Estimated: {duration_in_words(seconds)}, by earlier runs of the same arms."


def earlier_seconds(
    starts: Mapping[Arms, Sequence[ExperimentConfig]], environment: Mapping[str, str]
) -> dict[Arms, list[float]]:
    """Return how long finished runs of the same configurations took on this host.

    Of arms that start together, the slowest run of each earlier round.
    """
    wanted = {
        arms: [_identity(json.loads(config.to_json())) for config in configs]
        for arms, configs in starts.items()
    }
    rounds: dict[Arms, dict[object, list[float]]] = {arms: {} for arms in wanted}
    for run_id in list_run_names()[:_NEWEST]:
        paths = RunPaths(runs_folder() / run_id)
        try:
            identity = _identity(read_json(paths.config) or {})
            like = [arms for arms, configs in wanted.items() if identity in configs]
            record = (read_json(paths.record) or {}) if like else {}
            if not _is_of_here(record, environment):
                continue
            seconds = _seconds(record["time"])
        except DAMAGE_ERRORS:
            continue  # others say how long it takes
        tags = record.get("tags") or {}
        concurrent = tags.get("concurrent")
        start = (tags.get("study"), tags.get("repeat")) if concurrent else run_id
        for arms in like:
            if bool(concurrent) == (len(arms) > 1):
                rounds[arms].setdefault(start, []).append(seconds)
    return {
        arms: [max(many) for many in of_arms.values() if len(many) == len(arms)]
        for arms, of_arms in rounds.items()
    }


def _identity(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in _OWN}


def _is_of_here(record: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    variables = (record.get("environment") or {}).get("variables") or {}
    return (
        record.get("state") == "finished"
        and (record.get("machine") or {}).get("hostname") == hostname()
        and {name: variables.get(name) for name in environment} == {**environment}
    )


def _seconds(times: Mapping[str, str]) -> float:
    """Return how long a run took, without its time in a queue."""
    begin, end = (
        datetime.datetime.fromisoformat(times[name]) for name in ("started", "ended")
    )
    return (end - begin).total_seconds()
