"""Rows of the newest studies, polled without rereading those that have not changed.

Everything here is done by the store's thread (`nbkit.server.store_thread`).
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbkit.reading import read_file
from nbkit.store.paths import (
    RunPaths,
    StudyPaths,
    is_id,
    runs_folder,
    studies_folder,
)
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState, parse_json, read_json
from nbkit.store.stored_runs import StoredRun
from nbkit.visible import visible

NEWEST_STUDIES = 10
_SECONDS = 0.3  # per poll, for reading studies
_REPORT_BYTES = 4 << 20
_ANSWER_CHARACTERS = 1000

Row = dict[str, Any]
Stamp = tuple[int | None, ...]


class StudyTable:
    """Remembers what it has read, by the time stamps of the files.

    Parameters
    ----------
    relative
        Returns a path below the server's root; None where the server does not show it.
    """

    def __init__(self, relative: Callable[[Path], str | None]) -> None:
        self._relative = relative
        self._seen: dict[str, tuple[Stamp, Row]] = {}

    def poll(self) -> list[Row]:
        """Return the newest studies, newest first; some come with the next polls."""
        until = time.monotonic() + _SECONDS
        known = self._seen
        self._seen = {}
        for folder in _newest_folders():
            row = known.get(folder.name)
            if row is None or row[0] != _stamp(folder, row[1]):
                if time.monotonic() < until:
                    fresh = self._row(folder)
                    row = _stamp(folder, fresh), fresh
                elif row is None:
                    continue
            self._seen[folder.name] = row
        return [dict(row) for _, row in self._seen.values()]

    def _row(self, folder: Path) -> Row:
        row: Row = {
            "study_id": folder.name,
            "name": None,
            "state": "incomplete",
            "damage": None,
            "num_finished": 0,
            "num_starts": 0,
            "expected_end": None,
            "changed": None,
            "answer": None,
            "folder": self._relative(folder),
            "folder_path": str(folder.absolute()),
            "newest_run": None,
        }
        try:
            row.update(_progress(folder))
            result = folder / "result.json"
            if row["state"] != "running" and result.is_file():
                report = parse_json(read_file(result, _REPORT_BYTES), result)
                row["answer"] = _shown(report["answer"])
        except Exception as error:  # noqa: BLE001 - one study must not hide the others
            row["damage"] = visible(f"{type(error).__name__}: {error}")
        return row


def _progress(folder: Path) -> Row:
    # Not by StoredStudy: it imports what checks configurations.
    paths = StudyPaths(folder)
    content = parse_json(read_file(paths.study), paths.study)
    starts = {tuple(start) for start in content["order"]}
    finished = {
        (entry["arm"], entry["repeat"])
        for entry in content["runs"]
        if StoredRun(runs_folder() / entry["run_id"]).state is RunState.FINISHED
    }
    executor = content.get("executor")
    is_executed = bool(executor and ProcessIdentity.from_dict(executor).is_alive())
    runs = content["runs"]
    if is_executed:
        state = "running"
    elif not runs:
        state = "planned"
    else:
        state = "finished" if starts <= finished else "incomplete"
    progress = read_json(paths.progress) or {}
    end = progress.get("expected_end") if is_executed else None
    if end is not None:
        datetime.datetime.fromisoformat(end)  # a damaged time raises here
    changed = paths.study.stat().st_mtime
    return {
        "name": visible(content["name"]),
        "state": state,
        "num_finished": len(starts & finished),
        "num_starts": len(starts),
        "expected_end": end,
        "changed": datetime.datetime.fromtimestamp(changed, datetime.UTC).isoformat(),
        "answer": _shown(progress.get("answer")),
        "newest_run": str(runs[-1]["run_id"]) if runs else None,
    }


def _shown(answer: Any) -> str | None:
    return visible(str(answer))[:_ANSWER_CHARACTERS] if answer else None


def _newest_folders() -> list[Path]:
    try:
        folders = [path for path in studies_folder().iterdir() if is_id(path.name)]
    except FileNotFoundError:
        return []
    newest = sorted(folders, key=lambda path: path.name, reverse=True)
    return [path for path in newest[:NEWEST_STUDIES] if not path.is_symlink()]


def _stamp(folder: Path, row: Row) -> Stamp:
    """Return what changes with the row: files, and whether a process still works."""
    names = ("study.json", "progress.json", "report.html", "result.json")
    files = [folder / name for name in names]
    newest = row["newest_run"]
    if newest is not None and is_id(newest):
        files.append(RunPaths(runs_folder() / newest).record)
    stamps = tuple(map(_changed_ns, files))
    # Its process may end without a word.
    is_due = int(time.time() // 10) if row["state"] == "running" else None
    return *stamps, is_due


def _changed_ns(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None
