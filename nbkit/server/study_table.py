"""Rows of the newest studies, polled without rereading those that have not changed.

Everything here is done by the store's thread (`nbkit.server.store_thread`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nbkit.reading import file_stamp, read_file
from nbkit.store.ownership import is_of_others
from nbkit.store.paths import StudyPaths, is_id, runs_folder, studies_folder
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState, iso, parse_json, read_json, unix_seconds
from nbkit.store.stored_runs import StoredRun
from nbkit.visible import visible

NEWEST_STUDIES = 10
_SECONDS = 0.3  # per poll, for reading studies
_RESULT = "result.json"
_REPORT_BYTES = 4 << 20
_ANSWER_CHARACTERS = 1000

Row = dict[str, Any]
Stamp = tuple[Any, ...]


class StudyTable:
    """Remembers what it has read, by the time stamps of the files.

    Parameters
    ----------
    relative
        Returns a path below the server's root; None where the server does not show it.
    """

    def __init__(self, relative: Callable[[Path], str | None]) -> None:
        self._relative = relative
        self._seen: dict[str, tuple[Stamp, Row, list[Path]]] = {}

    def poll(self) -> list[Row]:
        """Return the newest studies, newest first; some come with the next polls."""
        until = time.monotonic() + _SECONDS
        known = self._seen
        self._seen = {}
        for folder in _newest_folders():
            seen = known.get(folder.name)
            if seen is None or seen[0] != _stamp(folder, *seen[1:]):
                if time.monotonic() < until:
                    row, watched = self._row(folder)
                    seen = _stamp(folder, row, watched), row, watched
                elif seen is None:
                    continue
            self._seen[folder.name] = seen
        return [dict(row) for _, row, _ in self._seen.values()]

    def _row(self, folder: Path) -> tuple[Row, list[Path]]:
        """Return a study's row, and the records of runs that have not finished."""
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
            "command": None,
            "folder": self._relative(folder),
            "folder_path": str(folder.absolute()),
        }
        watched: list[Path] = []
        try:
            watched = _read(folder, row)
        except Exception as error:  # noqa: BLE001 - one study must not hide the others
            row["damage"] = visible(f"{type(error).__name__}: {error}")
        return row, watched


def _read(folder: Path, row: Row) -> list[Path]:
    """Fill in a row; return the records of runs that have not finished."""
    # Not by StoredStudy: it imports what checks configurations.
    paths = StudyPaths(folder)
    content = parse_json(read_file(paths.study), paths.study)
    starts = {tuple(start) for start in content["order"]}
    records: list[Path] = []
    watched: list[Path] = []
    finished: set[tuple[str, int]] = set()
    removed: set[tuple[str, int]] = set()
    has_active = False
    for entry in content["runs"]:
        run = StoredRun(runs_folder() / entry["run_id"])
        start = entry["arm"], entry["repeat"]
        if not run.paths.root.is_dir():
            removed.add(start)
            continue
        records.append(run.paths.record)
        if run.state is RunState.FINISHED or _has_diverged(run):
            finished.add(start)
        else:
            watched.append(run.paths.record)
            has_active |= not (run.state.is_final or run.state is RunState.UNKNOWN)
    executor = content.get("executor")
    is_alive = ProcessIdentity.from_dict(executor).is_alive() if executor else False
    # Of another host's process only its runs tell.
    is_executed = has_active if is_alive is None else is_alive
    if is_executed:
        state = "running"
    elif not records:
        state = "planned"
    else:
        # Its process knows which starts the results have made needless.
        is_complete = content.get("is_complete", starts <= finished)
        is_complete &= removed <= finished
        state = "finished" if is_complete else "incomplete"
    progress = read_json(paths.progress) or {}
    end = progress.get("expected_end") if is_executed else None
    if end is not None:
        unix_seconds(end)  # a damaged time raises here
    row |= {
        "name": visible(content["name"]),
        "state": state,
        "num_finished": len(starts & finished),
        "num_starts": len(starts),
        "expected_end": end,
        "changed": iso(paths.study.stat().st_mtime),
        "answer": _shorten_answer(progress.get("answer")),
    }
    if not is_of_others(paths.imported, [folder, paths.study]):
        resume = f"nbkit.Study.open({folder.name!r}).resume()"
        command = (content.get("plan") or {}).get("command")
        row["command"] = visible(str(command or resume))
    result = folder / _RESULT
    if not is_executed and removed <= finished:
        stamps = map(file_stamp, (paths.study, *records))
        changed_ns = max((stamp[1] for stamp in stamps if stamp), default=0)
        if (made := file_stamp(result)) and made[1] > changed_ns:
            report = parse_json(read_file(result, _REPORT_BYTES), result)
            row["answer"] = _shorten_answer(report["answer"])
    return watched


def _has_diverged(run: StoredRun) -> bool:
    is_failed = run.state is RunState.FAILED
    return is_failed and (run.cause or {}).get("kind") == "nonfinite"


def _shorten_answer(answer: Any) -> str | None:
    return visible(str(answer))[:_ANSWER_CHARACTERS] if answer else None


def _newest_folders() -> list[Path]:
    try:
        folders = [path for path in studies_folder().iterdir() if is_id(path.name)]
    except FileNotFoundError:
        return []
    newest = sorted(folders, key=lambda path: path.name, reverse=True)
    return [path for path in newest[:NEWEST_STUDIES] if not path.is_symlink()]


def _stamp(folder: Path, row: Row, watched: list[Path]) -> Stamp:
    """Return what changes with the row: files, and whether a process still works."""
    files = [folder / name for name in ("study.json", "progress.json", _RESULT)]
    files.append(runs_folder())  # a run may have been removed
    stamps = tuple(map(file_stamp, [*files, *watched]))
    # Its process may end without a word.
    is_due = int(time.time() // 10) if row["state"] == "running" else None
    return *stamps, is_due
