"""A run as a row of plain values, for data frames and other programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nbkit import clock
from nbkit.errors import StoreError
from nbkit.live.running_time import running_time
from nbkit.store.record import DAMAGE_ERRORS, RunState, read_json
from nbkit.store.stored_runs import StoredRun
from nbkit.store.summary import RunSummary, summarise_run


def run_row(run: StoredRun) -> dict[str, Any]:
    """Return what is known of a run; what was goes before what was asked for."""
    # Not at every import of a run: it imports what checks configurations.
    from nbkit.config.fields import flat

    paths = run.paths
    # One damaged run must not hide the others.
    record, submission = _object(paths.record), _object(paths.submission)
    summary = _summary(run, record)
    state = _state(run)
    times = _mapping(record.get("time"))
    tags = _mapping(submission.get("tags"))
    divergence = summary.nonfinite
    divergence_text = {"nonfinite": None if divergence is None else str(divergence)}
    row = {
        "run_id": run.run_id,
        "name": submission.get("name") or record.get("name"),
        "state": str(state),
        "started": times.get("started"),
        "ended": times.get("ended"),
        "duration_seconds": _duration_seconds(record, submission, state),
        **dict(flat({**asdict(summary), **divergence_text})),
        **{f"tags.{name}": value for name, value in tags.items()},
    }
    fields = _object(paths.config)
    filled = {name for name, value in row.items() if value is not None}
    row |= {name: value for name, value in flat(fields) if name not in filled}
    # An empty mapping is not a value of a column.
    return {name: value for name, value in row.items() if value != {}}


def _object(path: Path) -> dict[str, Any]:
    try:
        return read_json(path) or {}
    except StoreError:
        return {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _summary(run: StoredRun, record: dict[str, Any]) -> RunSummary:
    try:
        lines = run.metrics(None)
    except DAMAGE_ERRORS:
        lines = []
    try:
        return summarise_run(lines, _object(run.paths.worker), record)
    except DAMAGE_ERRORS:
        return summarise_run([], {}, {})


def _state(run: StoredRun) -> RunState:
    try:
        return run.state
    except StoreError:
        return RunState.LOST


def _duration_seconds(
    record: dict[str, Any], submission: dict[str, Any], state: RunState
) -> float | None:
    try:
        ran = running_time(record, submission, state)
        return ran.at(clock.now(record.get("clock")))
    except DAMAGE_ERRORS:
        return None
