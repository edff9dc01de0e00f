"""Rows of all runs of the store, read as fast as the disk allows."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from nbkit.reading import read_newer
from nbkit.store.paths import RunPaths, runs_folder
from nbkit.store.record import (
    DAMAGE_ERRORS,
    RunState,
    damage_words,
    of_newest_attempt,
    parse_json,
    read_json,
)
from nbkit.store.stored_runs import StoredRun, list_run_names

_RECORD = RunPaths(Path()).record
_READERS = 8
_RUNS_PER_TASK = 256
_SETTLED_SECONDS = 2.0
"""A file that changed less long ago than this may change in the same tick."""

Line = dict[str, Any]
T = TypeVar("T")
_Stamp = tuple[int, ...]


@dataclass(frozen=True)
class RunRow:
    """One line of a list of runs."""

    run_id: str
    name: str | None
    state: RunState
    started: str | None
    """UTC, ISO 8601; None before the supervisor's first word."""
    ended: str | None
    damage: str | None = None
    """What is wrong with its files, in words; None if they can be read."""


_ended: dict[Path, dict[str, tuple[_Stamp, RunRow]]] = {}
"""Rows of runs that have finally ended, with the stamps of their files, by the store's
folder and run id."""


def list_runs(run_ids: Iterable[str] | None = None) -> list[RunRow]:
    """Return a row for each run, as things stand now."""
    folder = runs_folder()
    names = list_run_names() if run_ids is None else list(run_ids)
    ended = _ended.get(folder, {})
    # Before anything is read: what changes meanwhile has another stamp next time.
    stamps = _stamps(folder, names)
    rows: dict[str, RunRow | None] = {}
    for name, stamp in stamps.items():
        cached = ended.get(name)
        rows[name] = cached[1] if cached is not None and cached[0] == stamp else None
    unknown = [folder / name for name, row in rows.items() if row is None]
    new = {}
    for name, row, is_over in _read(unknown) if unknown else ():
        rows[name] = row
        if row is not None and is_over and (stamp := stamps[name]) is not None:
            new[name] = stamp, row
    if new:
        gone = ended.keys() - names if run_ids is None else set()
        # In one step: another thread may be looking.
        _ended[folder] = {i: end for i, end in (ended | new).items() if i not in gone}
    return [row for name in names if (row := rows[name]) is not None]


def _stamp(runs_fd: int, run_id: str) -> _Stamp | None:
    """Return times of change, sizes and inodes of the files that a row is made from.

    None if one is not there, or may have changed just now.
    """
    try:
        # Without a Path, and from the folder of runs: of ten thousand runs it shows.
        first = os.stat(f"{run_id}/submission.json", dir_fd=runs_fd)
        last = os.stat(f"{run_id}/record.json", dir_fd=runs_fd)
    except OSError:
        return None
    if max(first.st_mtime, last.st_mtime) > time.time() - _SETTLED_SECONDS:
        return None
    return (
        *(first.st_mtime_ns, first.st_size, first.st_ino),
        *(last.st_mtime_ns, last.st_size, last.st_ino),
    )


def _stamps(folder: Path, names: list[str]) -> dict[str, _Stamp | None]:
    """Return the stamps of runs, side by side where each has to be waited for."""
    try:
        runs_fd = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:  # no run was ever launched
        return dict.fromkeys(names)

    def look(part: list[str]) -> list[_Stamp | None]:
        return [_stamp(runs_fd, name) for name in part]

    try:
        with ThreadPoolExecutor(_READERS) as pool:
            parts = pool.map(look, _parts(names))
            return dict(zip(names, chain.from_iterable(parts), strict=True))
    finally:
        os.close(runs_fd)


def _parts(runs: list[T]) -> list[list[T]]:
    """Return runs in parts, each a task."""
    starts = range(0, len(runs), _RUNS_PER_TASK)
    return [runs[start : start + _RUNS_PER_TASK] for start in starts]


def _read(folders: list[Path]) -> Iterator[tuple[str, RunRow | None, bool]]:
    """Yield id and row of runs, and whether they have finally ended.

    There is no row of a run that was removed meanwhile.
    """

    # A cold list waits for the disk most of the time: a few threads wait side by side.
    # Parsing there would only make them wait for each other.
    def last_words(part: list[Path]) -> list[bytes | None]:
        return [_read_newer_record(str(folder)) for folder in part]

    parts = _parts(folders)
    with ThreadPoolExecutor(_READERS) as pool:
        ended = [
            (folder, _final_row(folder, last_word))
            for part, words in zip(parts, pool.map(last_words, parts), strict=True)
            for folder, last_word in zip(part, words, strict=True)
        ]
    for folder, row in ended:
        if row is None:
            _announce(RunPaths(folder))
    for folder, row in ended:
        yield folder.name, row or _read_row(folder), row is not None


def _read_newer_record(folder: str) -> bytes | None:
    """Return a run's record if it is newer than its last attempt's beginning.

    Two looks at time stamps instead of reading another file: a long list of runs is
    made of such records.
    """
    try:
        submitted = os.stat(folder + "/submission.json").st_mtime_ns  # noqa: PTH116
        return read_newer(folder + "/record.json", submitted)
    except OSError:
        return None


def _final_row(folder: Path, last_word: bytes | None) -> RunRow | None:
    """Return the row of a run that has finally ended; None if it may not have."""
    if last_word is None:
        return None
    try:
        record = parse_json(last_word, _RECORD)
        state = RunState(record["state"])
        if state.is_final and not _may_go_on(record):
            return _row(folder, record, state)
    except DAMAGE_ERRORS:
        pass
    return None


def _read_row(folder: Path) -> RunRow | None:
    """Return any run's row; None if it was removed meanwhile."""
    run = StoredRun(folder)
    try:
        record, submission = run.record, run.submission
        attempt = of_newest_attempt(record, submission)
        row = {"name": submission.get("name"), **attempt}
        return _row(folder, row, run.state_by(record))
    except DAMAGE_ERRORS as error:
        # One damaged run must not hide the others.
        words = damage_words(folder, error)
        return _row(folder, {}, RunState.LOST, words) if folder.is_dir() else None


def _row(
    folder: Path, record: Line, state: RunState, damage: str | None = None
) -> RunRow:
    times = record.get("time") or {}
    return RunRow(
        run_id=folder.name,
        name=record.get("name"),
        state=state,
        started=times.get("started"),
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
