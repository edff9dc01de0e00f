"""A run as a row of plain values, for data frames and other programs."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from nbkit.errors import ConfigError
from nbkit.store.runs import StoredRun

__all__ = ["run_row"]


def run_row(run: StoredRun) -> dict[str, Any]:
    """Return what is known of a run, by flat names; None is unknown.

    Where its configuration and its summary have a name in common, the summary's value
    is kept: it is what was, not what was asked for.

    Parameters
    ----------
    run
        A run in any state. Of one that another version of nbkit launched, with fields
        that this one does not know, those are missing.

    Raises
    ------
    StoreError
        If its files cannot be read.
    """
    record, submission = run.record, run.submission
    times = record.get("time") or {}
    started, ended = times.get("started"), times.get("ended")
    row = {
        "run_id": run.run_id,
        "name": submission.get("name") or record.get("name"),
        "state": str(run.state),
        "started": started,
        "ended": ended,
        "duration_seconds": _seconds(started, ended),
        **dict(_flat(asdict(run.summary))),
        **{f"tags.{name}": it for name, it in (submission.get("tags") or {}).items()},
    }
    try:
        fields = run.config.model_dump(mode="json")
    except ConfigError:
        fields = {}
    known = {name for name, value in row.items() if value is not None}
    return row | {name: it for name, it in _flat(fields) if name not in known}


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _seconds(started: str | None, ended: str | None) -> float | None:
    if started is None or ended is None:
        return None
    begin, end = map(datetime.datetime.fromisoformat, (started, ended))
    return (end - begin).total_seconds()
