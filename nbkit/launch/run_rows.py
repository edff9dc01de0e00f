"""A run as a row of plain values, for data frames and other programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from nbkit import clock
from nbkit.live.running_time import running_time
from nbkit.store.record import DAMAGE_ERRORS, RunState, first_start, read_json
from nbkit.store.stored_runs import StoredRun
from nbkit.store.summary import summarise_run

T = TypeVar("T")


def run_row(run: StoredRun) -> dict[str, Any]:
    """Return what is known of a run; what was goes before what was asked for."""
    # Not at every import of a run: it imports what checks configurations.
    from nbkit.config.fields import flat

    paths = run.paths
    record, submission, worker, fields = (
        _unless_damaged(lambda path=path: read_json(path) or {}, {})
        for path in (paths.record, paths.submission, paths.worker, paths.config)
    )
    lines = _unless_damaged(lambda: run.metrics(None), [])
    summary = _unless_damaged(
        lambda: summarise_run(lines, worker, record), summarise_run([], {}, {})
    )
    state = _unless_damaged(lambda: run.state, RunState.LOST)
    times = record.get("time") or {}
    tags = submission.get("tags") or {}
    divergence = summary.nonfinite
    divergence_text = {"nonfinite": None if divergence is None else str(divergence)}
    row = {
        "run_id": run.run_id,
        "name": submission.get("name") or record.get("name"),
        "state": str(state),
        "started": _unless_damaged(lambda: first_start(record), times.get("started")),
        "ended": times.get("ended"),
        "duration_seconds": _unless_damaged(
            lambda: running_time(record, submission, state).at(
                clock.now(record.get("clock"))
            ),
            None,
        ),
        **dict(flat({**asdict(summary), **divergence_text})),
        **{f"tags.{name}": value for name, value in tags.items()},
    }
    filled = {name for name, value in row.items() if value is not None}
    row |= {name: value for name, value in flat(fields) if name not in filled}
    # An empty mapping is not a value of a column.
    return {name: value for name, value in row.items() if value != {}}


def _unless_damaged(read: Callable[[], T], otherwise: T) -> T:
    """Return what is read, or something else: a damaged run must not hide others."""
    try:
        return read()
    except DAMAGE_ERRORS:
        return otherwise
