"""A row for every run of the store, read as fast as the disk allows."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from nbkit.reading import read_newer
from nbkit.store.paths import RunPaths, runs_folder
from nbkit.store.record import (
    DAMAGE_ERRORS,
    RunState,
    damage_words,
    first_start,
    of_newest_attempt,
    parse_json,
    read_json,
)
from nbkit.store.stored_runs import StoredRun, list_run_names

_RECORD = RunPaths(Path()).record
_READERS = 8
RUNS_PER_TASK = 256
_SETTLED_NS = 2_000_000_000
"""A folder that changed less long ago than this may change in the same tick."""

Line = dict[str, Any]
_Stamp = tuple[int, int]


@dataclass(frozen=True)
class RunRow:
    """One line of a list of runs."""

    run_id: str
    name: str | None
    state: RunState
    started: str | None
    """Begin of the first attempt, UTC, ISO 8601; None before it."""
    ended: str | None
    damage: str | None = None
    """What is wrong with its files, in words; None if they can be read."""


_ended: dict[Path, dict[str, tuple[_Stamp, RunRow]]] = {}
"""Rows of runs that have finally ended, with their folders' stamps, by the store's
folder and run id."""


def list_runs(run_ids: Iterable[str] | None = None) -> list[RunRow]:
    """Return a row for each run, as things stand now."""
    folder = runs_folder()
    root = str(folder)
    names = list_run_names() if run_ids is None else list(run_ids)
    ended = _ended.get(folder, {})
    settled_ns = time.time_ns() - _SETTLED_NS

    # A cold list waits for the disk most of the time: a few threads wait side by side.
    # Parsing there would only make them wait for each other.
    def look(part: list[str]) -> list[tuple[_Stamp | None, RunRow | bytes | None]]:
        return [_look(f"{root}/{it}", ended.get(it), settled_ns) for it in part]

    starts = range(0, len(names), RUNS_PER_TASK)
    parts = [names[start : start + RUNS_PER_TASK] for start in starts]
    rows: list[RunRow | None] = []
    new = {}
    with ThreadPoolExecutor(_READERS) as pool:
        looks = chain.from_iterable(pool.map(look, parts))
        for name, (stamp, found) in zip(names, looks, strict=True):
            row = found if isinstance(found, RunRow) else _final_row(name, found)
            rows.append(row)
            if row is not None and row is not found and stamp is not None:
                new[name] = stamp, row
    active = [folder / name for name, row in zip(names, rows, strict=True) if not row]
    for path in active:
        _announce(RunPaths(path))
    if new:
        gone = ended.keys() - names if run_ids is None else set()
        # In one step: another thread may be looking.
        _ended[folder] = {i: it for i, it in (ended | new).items() if i not in gone}
    now = map(_row_now, active)
    return [it for row in rows if (it := row or next(now)) is not None]


def _look(
    folder: str, known: tuple[_Stamp, RunRow] | None, settled_ns: int
) -> tuple[_Stamp | None, RunRow | bytes | None]:
    """Return the stamp of a run's folder, and its known row or else its last word.

    Files of a run are replaced, never changed: that changes its folder. There is no
    stamp of one that may have changed just now.
    """
    try:
        # Before anything is read: what changes meanwhile has another stamp next time.
        status = os.stat(folder)  # noqa: PTH116
    except OSError:
        return None, None
    stamp = status.st_mtime_ns, status.st_ino
    if known is not None and known[0] == stamp:
        return known
    return stamp if stamp[0] < settled_ns else None, _last_word(folder)


def _last_word(folder: str) -> bytes | None:
    """Return a run's record if it is newer than its last attempt's beginning.

    Two looks at time stamps instead of reading another file: a long list of runs is
    made of such records.
    """
    try:
        submitted = os.stat(folder + "/submission.json").st_mtime_ns  # noqa: PTH116
        return read_newer(folder + "/record.json", submitted)
    except OSError:
        return None


def _final_row(run_id: str, last_word: bytes | None) -> RunRow | None:
    """Return the row of a run that has finally ended; None if it may not have."""
    if last_word is None:
        return None
    try:
        record = parse_json(last_word, _RECORD)
        state = RunState(record["state"])
        if state.is_final and not _may_go_on(record):
            return _row(run_id, record, state)
    except DAMAGE_ERRORS:
        pass
    return None


def _row_now(folder: Path) -> RunRow | None:
    """Return any run's row; None if it was removed meanwhile."""
    run = StoredRun(folder)
    try:
        record, submission = run.record, run.submission
        attempt = of_newest_attempt(record, submission)
        row = {
            "name": submission.get("name"),
            "attempts": record.get("attempts"),
            **attempt,
        }
        return _row(folder.name, row, run.state_by(record))
    except DAMAGE_ERRORS as error:
        # One damaged run must not hide the others.
        words = damage_words(folder, error)
        lost = _row(folder.name, {}, RunState.LOST, words)
        return lost if folder.is_dir() else None


def _row(
    run_id: str, record: Line, state: RunState, damage: str | None = None
) -> RunRow:
    times = record.get("time") or {}
    return RunRow(
        run_id=run_id,
        name=record.get("name"),
        state=state,
        started=first_start(record),
        ended=times.get("ended"),
        damage=damage,
    )


def _announce(paths: RunPaths) -> None:
    """Let Slurm be asked for all runs together, not for one after the other."""
    with suppress(*DAMAGE_ERRORS):
        if (read_json(paths.submission) or {}).get("job"):
            from nbkit.store.job_state import announce

            announce(paths)


def _may_go_on(record: Line) -> bool:
    if not (record.get("launch") or {}).get("job"):
        return False
    from nbkit.store.job_state import may_go_on

    return may_go_on(record)
