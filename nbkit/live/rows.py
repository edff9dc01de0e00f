"""Rows of a table of runs: small enough for thousands."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nbkit import clock
from nbkit.live.metrics import LiveMetrics, final_rate
from nbkit.live.running_time import running_time, unix
from nbkit.reading import file_stamp
from nbkit.store.nonfinite import FiniteFollower
from nbkit.store.progress import progress
from nbkit.store.record import DAMAGE_ERRORS, RunState, damage_words, read_json
from nbkit.store.run_list import list_runs
from nbkit.store.stored_runs import StoredRun
from nbkit.visible import visible

IMAGES_PER_SECOND = (
    "images per second over the measured steps, without warm-up; for an active run, "
    "over its last 20 steps; for a run without measured steps, the rate that it logged"
)
"""What images per second in a list of runs mean: a tooltip."""

_MOST_RATES = 10_000
_MOST_UNREAD = 8

_Stamp = tuple[int, int, int]

_rates: dict[Path, tuple[_Stamp, float | None]] = {}
"""Rates of ended runs, and the stamp of the file that they are from."""

_finite: dict[Path, tuple[int, FiniteFollower]] = {}
"""By file what its lines have said so far, and its inode: it is read on."""

_unread: dict[Path, tuple[_Stamp, LiveMetrics]] = {}
"""Long files of ended runs, as far as they were read."""

_NOT_READ = "not all steps were read"


def run_rows(runs: Iterable[StoredRun]) -> list[dict[str, Any]]:
    """Return id, name, state and start of runs, in their order."""
    return [
        {
            "run_id": row.run_id,
            "name": row.name and visible(row.name),
            "state": str(row.state),
            "started_at": unix(row.started),
            "damage": row.damage,
        }
        for row in list_runs(run.run_id for run in runs)
    ]


def run_numbers(
    run: StoredRun, limit_seconds: float = float("inf")
) -> dict[str, Any] | None:
    """Return what has to be read of one run alone: state and numbers of one moment."""
    now = time.time()
    numbers: dict[str, Any] = {
        "at": now,
        "state": str(RunState.LOST),
        "duration_seconds": None,
        "gpus": None,
        "images_per_second": None,
        "loss": None,
        "nonfinite": None,
        "imported_from": run.imported_from and visible(run.imported_from),
        "damage": None,
    }
    try:
        # First: what a run writes before its end is read after its end was seen.
        state = run.state
        numbers["state"] = str(state)
        ran = running_time(run.record, run.submission, state)
        numbers["duration_seconds"] = ran.at(clock.now(run.record.get("clock")))
        config = read_json(run.paths.config) or {}
        if config.get("gpus"):
            numbers["gpus"] = config["gpus"] * (config.get("nnodes") or 1)
        numbers |= nonfinite_words(run, limit_seconds) or {"nonfinite": _NOT_READ}
        fresh: dict[str, Any] = progress(run.paths.metrics)
        fresh |= ended_rate(run, state, limit_seconds) or (
            {"images_per_second": None} if state.is_final else {}
        )
        numbers |= {key: fresh.get(key) for key in ("images_per_second", "loss")}
    except DAMAGE_ERRORS as error:
        numbers["damage"] = damage_words(run.paths.root, error)
        return numbers if run.paths.root.is_dir() else None
    return numbers


def state_words(row: dict[str, Any]) -> str:
    """Return a row's state, and what is wrong with the run, or whence it came."""
    host = row.get("imported_from")
    origin = host and f"imported from {host}"
    words = (row["state"], row.get("nonfinite"), row.get("damage"), origin)
    return visible(", ".join(filter(None, words)))


def nonfinite_words(
    run: StoredRun, limit_seconds: float = float("inf")
) -> dict[str, str | None]:
    """Return where a run stopped being finite, in words: ``nonfinite``, or None.

    Empty where there was no time to read all: the next call continues from there.
    """
    path = run.paths.metrics
    if (stamp := file_stamp(path)) is None:
        return {"nonfinite": None}
    inode, follower = _finite.pop(path, (None, None))
    if follower is None or inode != stamp[0]:
        follower = FiniteFollower(path)
    if len(_finite) >= _MOST_RATES:
        _finite.clear()
    nonfinite = follower.first_nonfinite(run.worker, limit_seconds)
    _finite[path] = stamp[0], follower
    if not follower.has_all:
        return {}
    return {"nonfinite": None if nonfinite is None else str(nonfinite)}


def ended_rate(
    run: StoredRun, state: RunState, limit_seconds: float
) -> dict[str, float | None]:
    """Return the rate of a run that has ended, in the place of its newest steps'."""
    if not state.is_final:
        return {}
    path = run.paths.metrics
    if (stamp := file_stamp(path)) is None:
        return {"images_per_second": None}
    cached = _rates.get(path)
    if cached is not None and cached[0] == stamp:
        return {"images_per_second": cached[1]}
    begun = _unread.pop(path, None)
    metrics = begun[1] if begun and begun[0] == stamp else LiveMetrics(path)
    if not metrics.read(limit_seconds):
        # One that had no time must not take the place of what was read.
        if begun or limit_seconds:
            if len(_unread) >= _MOST_UNREAD:
                _unread.clear()
            _unread[path] = stamp, metrics
        return {}
    if len(_rates) >= _MOST_RATES:
        _rates.clear()
    _rates[path] = stamp, final_rate(metrics)
    return {"images_per_second": _rates[path][1]}
