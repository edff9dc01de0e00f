"""What a table of runs shows of each: little enough to read of thousands."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

from nbkit.errors import StoreError
from nbkit.store.progress import progress
from nbkit.store.record import read_json
from nbkit.store.runs import RunRow, StoredRun, list_runs

__all__ = ["run_numbers", "run_rows"]


def run_rows(runs: Iterable[StoredRun]) -> list[dict[str, Any]]:
    """Return id, name, state and times of runs, in their order.

    Returns
    -------
    list
        ``run_id``, ``name``, ``state``, ``started_at`` (Unix time in seconds) and
        ``duration_seconds``, until now for runs under way; None is unknown. Runs that
        were removed meanwhile are left out.
    """
    known = {row.run_id: row for row in list_runs()}
    now = datetime.datetime.now(datetime.UTC)
    return [_row(known[run.run_id], now) for run in runs if run.run_id in known]


def run_numbers(run: StoredRun) -> dict[str, Any]:
    """Return GPUs, rate and loss of a run, from its configuration and newest steps.

    Returns
    -------
    dict
        ``gpus`` (processes of all nodes), ``images_per_second`` (the median of the
        newest twenty steps) and ``loss``; None is unknown.
    """
    numbers: dict[str, Any] = {"gpus": None, "images_per_second": None, "loss": None}
    try:
        config = read_json(run.paths.config) or {}
        if config.get("gpus"):
            numbers["gpus"] = config["gpus"] * (config.get("nnodes") or 1)
        found = progress(run.paths.metrics)
    except (OSError, StoreError, ValueError):
        return numbers  # a damaged or removed file tells nothing
    return {**numbers, **{key: found[key] for key in numbers.keys() & found.keys()}}


def _row(row: RunRow, now: datetime.datetime) -> dict[str, Any]:
    started = _time(row.started)
    ended = _time(row.ended) or (None if row.state.is_final else now)
    duration = (ended - started).total_seconds() if started and ended else None
    return {
        "run_id": row.run_id,
        "name": row.name,
        "state": str(row.state),
        "started_at": started.timestamp() if started else None,
        "duration_seconds": duration,
    }


def _time(text: str | None) -> datetime.datetime | None:
    return None if text is None else datetime.datetime.fromisoformat(text)
