"""Rows of the newest and the active runs, polled without rereading all.

Everything here is done by the store's thread (`nbkit.server.store_thread`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from nbkit.errors import RunNotFoundError, StoreError
from nbkit.live.rows import ended_rate, nonfinite_words
from nbkit.reading import file_stamp
from nbkit.server.active_runs import ActiveRuns
from nbkit.server.run_row import (
    Row,
    cause_of,
    devices_of,
    empty_row,
    last_heartbeat,
    name_of,
    num_nodes,
    origin_of,
    planned,
    queue_of,
    times_of,
)
from nbkit.server.study_table import StudyTable
from nbkit.store.job_state import may_go_on
from nbkit.store.paths import RunPaths, is_id, runs_folder
from nbkit.store.processes import ProcessIdentity, hostname
from nbkit.store.progress import progress
from nbkit.store.record import RunState, of_newest_attempt, read_json, unix_seconds
from nbkit.store.stored_runs import StoredRun, find_run_folder, list_run_folders
from nbkit.telemetry.holders import Kernel

NEWEST = 50
_PAST_SECONDS = 24 * 3600.0
_PAST_RUNS = 20
STEPS_SECONDS = 0.5  # per poll, for reading all steps of runs
_SETTLED_SECONDS = 2.0
"""A folder that changed later than this before a poll may change in the same tick."""

Stamp = tuple[tuple[int, int, int] | None, ...]


@dataclass(frozen=True)
class StoreView:
    """What the store holds now."""

    rows: list[Row]
    """The newest runs, and older ones that have not ended; newest first."""
    active: list[Row]
    """Those under way, as the sampler's process wants to know them."""
    past: list[str]
    """Files of this host's samples of runs of the last day."""
    studies: list[Row]
    """The newest studies, newest first."""


@dataclass
class _Seen:
    stamp: Stamp | None
    """None if it has to be read again."""
    paths: RunPaths
    row: Row
    state: RunState = RunState.LOST
    supervisor: Any = None
    is_job: bool = False
    may_go_on: bool = False
    """Whether Slurm may start it again, without a word in its files."""

    def note(self, error: Exception) -> None:
        """Record in the row what could not be read, unless it already has a cause."""
        self.stamp = None
        if self.row["cause"] is None:
            self.row["cause"] = f"{type(error).__name__}: {error}"


class StoredRunTable:
    """Remembers what it has read, by the time stamps of the files.

    Parameters
    ----------
    root
        The server's root folder; None if its contents are not files.
    allow_hidden
        Whether the server shows hidden folders.
    """

    def __init__(self, root: Path | None, *, allow_hidden: bool = False) -> None:
        self._root = root.resolve() if root is not None else None
        self._allow_hidden = allow_hidden
        self._seen: dict[str, _Seen] = {}
        self._going = ActiveRuns()
        self._notebooks: dict[str, str] = {}
        """By run: known as long as its owner's kernel lives, and remembered."""
        self._owners: dict[tuple[str, int], int | None] = {}
        self._folders: list[Path] = []
        self._folders_stamp: tuple[Path, int] | None = None
        self._steps_until = 0.0
        self._studies = StudyTable(self._relative)

    def poll(self, kernels: Sequence[Kernel], limit: int = NEWEST) -> StoreView:
        """Return the newest runs, and older ones that have not ended."""
        self._steps_until = time.monotonic() + STEPS_SECONDS
        owners = self._kernel_owners(kernels)
        folders, going = self._newest_folders(), self._going.ids()
        runs: list[_Seen] = []
        for folder in folders:
            is_newest = len(runs) < limit
            if not is_newest and folder.name not in going:
                continue
            seen = self._poll(folder, owners)
            if seen is None:
                continue
            self._going.note(folder.name, seen.state)
            if is_newest or not seen.state.is_final:
                runs.append(seen)
                self._seen[folder.name] = seen
        # A request for fewer must not discard the others.
        kept = {folder.name for folder in folders[: max(limit, NEWEST)]} | going
        self._seen = {name: seen for name, seen in self._seen.items() if name in kept}
        active = [_active(seen) for seen in runs if not seen.state.is_final]
        past = [file for seen in runs if (file := _sample_file(seen)) is not None]
        # Copies: two polls are compared, and must not share a row.
        rows, studies = [dict(seen.row) for seen in runs], self._studies.poll()
        return StoreView(rows, active, past[:_PAST_RUNS], studies)

    def read_run(self, run_id: str, kernels: Sequence[Kernel]) -> Row:
        """Return one run's row."""
        self._steps_until = time.monotonic() + STEPS_SECONDS
        folder = find_exactly(run_id)
        seen = self._poll(folder, self._kernel_owners(kernels))
        if seen is None:
            message = f"run_id={run_id!r} was just removed. Refresh the list."
            raise RunNotFoundError(message)
        return dict(seen.row)

    def _newest_folders(self) -> list[Path]:
        folder = runs_folder()
        try:
            changed = folder.stat().st_mtime_ns
        except FileNotFoundError:
            return []
        stamp = (folder, changed)
        if stamp != self._folders_stamp:
            self._folders = list_run_folders()
            settled = time.time() - changed / 1e9 > _SETTLED_SECONDS
            self._folders_stamp = stamp if settled else None
        return self._folders

    def _kernel_owners(self, kernels: Iterable[Kernel]) -> dict[tuple[int, int], str]:
        """Return notebooks by pid and start time: a pid alone may be another's now."""
        start_ticks: dict[tuple[str, int], int | None] = {}
        owners: dict[tuple[int, int], str] = {}
        for kernel in kernels:
            if kernel.pid is None or kernel.path is None:
                continue
            key = (kernel.kernel_id, kernel.pid)
            ticks = self._owners.get(key)
            if key not in self._owners:
                with suppress(ProcessLookupError):
                    ticks = ProcessIdentity.of(kernel.pid).start_ticks
            start_ticks[key] = ticks
            if ticks is not None:
                owners[kernel.pid, ticks] = kernel.path
        self._owners = start_ticks
        return owners

    def _poll(self, folder: Path, owners: dict[tuple[int, int], str]) -> _Seen | None:
        """Return a run; None if it was just removed, or is outside the store."""
        paths = RunPaths(folder)
        files = (paths.record, paths.submission, paths.metrics, paths.worker)
        stamp = tuple(map(file_stamp, files))
        old = self._seen.get(folder.name)
        if old is not None and old.stamp == stamp and _has_ended_for_good(old):
            return old
        if folder.is_symlink() and not _is_inside(folder):
            return None
        seen = _Seen(stamp, paths, empty_row(paths))
        try:
            self._read(seen, owners)
        except Exception as error:  # noqa: BLE001 - one run must not hide the others
            if not folder.is_dir():
                return None
            seen.note(error)
        return seen

    def _read(self, seen: _Seen, owners: dict[tuple[int, int], str]) -> None:
        """Fill a row: first who and in which state, then what may be damaged alone."""
        paths, row = seen.paths, seen.row
        row["own"] = is_own(paths.root)
        row["folder"] = self._relative(paths.root)
        run = StoredRun(paths.root)
        record, submission = run.record, run.submission
        seen.state = run.state
        seen.supervisor = submission.get("supervisor")
        seen.is_job = submission.get("job") is not None
        seen.may_go_on = seen.is_job and may_go_on(record)
        newest = of_newest_attempt(record, submission)
        begun = bool(newest) or not record
        row["state"] = str(seen.state)
        is_unrecorded = seen.state.is_final and newest.get("state") != seen.state
        parts = (
            lambda: cause_of(run, seen.state),
            # Before a Slurm job has begun, only its launcher has written.
            lambda: name_of(record, submission),
            lambda: times_of(newest),
            lambda: {"study_id": run.study_id},
            # Of a run that has ended without a final record.
            lambda: last_heartbeat(paths, begun) if is_unrecorded else {},
            lambda: {"devices": [str(device) for device in devices_of(record)]},
            lambda: queue_of(run) if seen.state is RunState.QUEUED else {},
            lambda: {} if seen.state.is_final else num_nodes(paths, record),
            lambda: origin_of(run),
            lambda: planned(read_json(paths.config) or {}),
            lambda: progress(paths.metrics),
            lambda: self._nonfinite(run, seen),
            lambda: self._ended_rate(run, seen),
            lambda: {"tensorboard": paths.tensorboard.is_dir()},
            lambda: {"notebook": self._notebook(paths.run_id, submission, owners)},
        )
        for part in parts:
            try:
                row.update(part())
            except Exception as error:  # noqa: BLE001 - the row says which is missing
                seen.note(error)

    @property
    def _left_seconds(self) -> float:
        return max(0.0, self._steps_until - time.monotonic())

    def _nonfinite(self, run: StoredRun, seen: _Seen) -> Row:
        nonfinite = nonfinite_words(run, self._left_seconds)
        if not nonfinite:
            seen.stamp = None  # the next poll continues
        return nonfinite

    def _ended_rate(self, run: StoredRun, seen: _Seen) -> Row:
        rate = ended_rate(run, seen.state, self._left_seconds)
        if seen.state.is_final and not rate:
            seen.stamp = None  # the next poll continues
        return rate

    def _notebook(
        self, run_id: str, submission: Row, owners: dict[tuple[int, int], str]
    ) -> str | None:
        owner = submission.get("owner") or {}
        if owner and owner["host"] == hostname():
            path = owners.get((owner["pid"], owner["start_ticks"]))
            if path is not None:
                self._notebooks[run_id] = path
        notebook = self._notebooks.get(run_id)
        launched_in = submission.get("notebook")
        # `Path.is_file` raises in a folder that is closed to this user.
        if notebook is None and launched_in and os.path.isfile(launched_in):  # noqa: PTH113
            # The kernel is gone, or another server knows it.
            return self._relative(Path(launched_in))
        return notebook

    def _relative(self, folder: Path) -> str | None:
        """Return a folder's path below the server's root, if the server shows it."""
        if self._root is None:
            return None
        try:
            path = PurePosixPath(folder.resolve().relative_to(self._root))
        except ValueError:
            return None
        hidden = any(part.startswith(".") for part in path.parts)
        return None if hidden and not self._allow_hidden else str(path)


def find_exactly(run_id: str) -> Path:
    """Return the folder of a run of this store, given its whole id."""
    if is_id(run_id):
        folder = find_run_folder(run_id)
        if folder.name == run_id and _is_inside(folder):
            return folder
    message = f"run_id={run_id[:80]!r}: no run in the store has this id."
    raise RunNotFoundError(message)


def is_own(folder: Path) -> bool:
    """Return whether this server's user launched a run."""
    return folder.stat().st_uid == os.getuid()


def _has_ended_for_good(seen: _Seen) -> bool:
    """Return whether a row stays right as long as the files do not change.

    Files do not show that Slurm has requeued an ended job, and Slurm may have been
    silent when the row was made.
    """
    if not seen.state.is_final or not seen.may_go_on:
        return seen.state.is_final
    try:
        return StoredRun(seen.paths.root).state is seen.state
    except (StoreError, OSError):
        return False  # it is read again, and the row says what is wrong


def _active(seen: _Seen) -> Row:
    """Return a run under way with the processes that are known of it."""
    files: list[Path] = []
    try:
        # Ranks of a job are on its nodes, and may be thousands.
        if not seen.is_job:
            files = [f for f in seen.paths.process_files() if f.name == "process.json"]
    except OSError as error:
        seen.note(error)
    pids: set[int] = set()
    for values in (seen.supervisor, *map(_json, files)):
        try:
            identity = ProcessIdentity.from_dict(values) if values else None
            if identity is not None and identity.is_here and identity.is_alive():
                pids.add(identity.pid)
        except Exception as error:  # noqa: BLE001 - the other processes count
            seen.note(error)
    row = seen.row
    return {
        "run_id": row["run_id"],
        "name": row["name"],
        "devices": row["devices"],
        "pids": sorted(pids),
        "path": row["notebook"],
    }


def _sample_file(seen: _Seen) -> str | None:
    """Return a file of samples: of a run under way, or that ended in the last day."""
    ended = seen.row["ended"]
    if seen.state.is_final and (
        not ended or unix_seconds(ended) < time.time() - _PAST_SECONDS
    ):
        return None
    file = seen.paths.system(hostname())
    try:
        return str(file) if file.is_file() else None
    except OSError as error:
        seen.note(error)
        return None


def _is_inside(folder: Path) -> bool:
    """Return whether a run's folder is in the store: a link may lead out of it."""
    return folder.resolve().parent == runs_folder().resolve()


def _json(path: Path) -> Row | None:
    try:
        return read_json(path)
    except StoreError:
        return None  # the rank is writing it, or has lost its disk; the run says so
