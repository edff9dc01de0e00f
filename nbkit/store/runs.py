"""Runs in the store: create, find and read them. Readers never write."""

from __future__ import annotations

import datetime
import os
import re
import secrets
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from nbkit.errors import ConfigError, RunNotFoundError, StoreError
from nbkit.store.metrics import read_json_lines, store_error, without_repeats
from nbkit.store.paths import RunPaths, is_id, runs_folder
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import RunState, damage_told, read_json
from nbkit.store.summary import RunSummary, summarise_run

if TYPE_CHECKING:
    from nbkit.config import ExperimentConfig
    from nbkit.store.job_state import Standing

__all__ = [
    "StoredRun",
    "create_run_folder",
    "find_run_folder",
    "list_run_folders",
]

_KINDS = ("step", "log", "evaluation", "checkpoint", "allreduce", "inference")
_SUBMITTED_WITHIN_SECONDS = 60
"""A folder that nobody has submitted by then lost its launcher in between."""

Line = dict[str, Any]
Stream = Literal["stdout", "stderr"]


class StoredRun:
    """A run as its files tell it; any process may open any run.

    Parameters
    ----------
    root
        The run's folder.
    """

    def __init__(self, root: Path) -> None:
        self.paths = RunPaths(root)

    @property
    def run_id(self) -> str:
        """The run's id, which is its folder's name."""
        return self.paths.run_id

    @cached_property
    def config(self) -> ExperimentConfig:
        """What was asked for."""
        # Imported here: who only lists runs is spared 6 MiB of validation.
        from nbkit.config import ExperimentConfig

        return ExperimentConfig.from_store(self._bytes(self.paths.config))

    @property
    def record(self) -> Line:
        """The record as it is now; empty before the supervisor's first write."""
        return read_json(self.paths.record) or {}

    @property
    def submission(self) -> Line:
        """Who launched the newest attempt; empty if nobody did (plain torchrun)."""
        return read_json(self.paths.submission) or {}

    @property
    def worker(self) -> Line:
        """What only a torch process knows; empty before the ranks have met."""
        return read_json(self.paths.worker) or {}

    @property
    def state(self) -> RunState:
        """Where the run stands now; ``lost`` if whoever should write it is gone."""
        return self.state_by(self.record)

    @property
    def cause(self) -> Line | None:
        """Why the run failed or was stopped; None for any other state."""
        record, submission = self.record, self.submission
        if submission.get("job"):
            return self._standing(submission, record).cause
        if self.state_by(record) is RunState.LOST:
            return {
                "kind": "lost",
                "rank": None,
                "message": "the supervisor process is gone without a last word "
                "(killed, or the host went down); metrics up to the last step are kept",
                "log": str(self.supervisor_log),
            }
        return record.get("cause")

    @property
    def queue(self) -> Line | None:
        """For what the run waits; None if it does not.

        ``position`` and ``length`` of the queue (None: only Slurm knows), ``reason``
        in words, and ``since`` (UTC, ISO 8601).
        """
        record, submission = self.record, self.submission
        if submission.get("job"):
            return self._standing(submission, record).queue
        return record.get("queue")

    @property
    def supervisor_log(self) -> Path:
        """The newest supervisor's own output; it may have made several attempts."""
        return self.paths.supervisor_log(int(self.submission.get("attempt", 0)))

    @property
    def attempt(self) -> int:
        """The newest attempt's number, counted from 0."""
        # A supervisor may have started the ranks again, on its own.
        known = (self.submission, self.record)
        return max(int(source.get("attempt", 0)) for source in known)

    @property
    def profile(self) -> Path | None:
        """The trace that ``profile=True`` keeps, for ui.perfetto.dev; None without."""
        return self.paths.profile if self.paths.profile.exists() else None

    def metrics(self, kind: str | None = "step") -> list[Line]:
        """Return recorded lines, oldest first.

        Parameters
        ----------
        kind
            ``step``, ``log`` (of `nbkit.log`), ``evaluation``, ``checkpoint``,
            ``allreduce`` or ``inference``; None for all.

        Notes
        -----
        A resumed attempt starts at its checkpoint; the lines it repeats take the
        place of the earlier ones, so that steps never run backwards.
        """
        _check_one_of("kind", kind, (*_KINDS, None))
        lines = without_repeats(read_json_lines(self.paths.metrics))
        return [line for line in lines if kind is None or line["kind"] == kind]

    @property
    def events(self) -> list[Line]:
        """What happened to the run, in order."""
        return read_json_lines(self.paths.events)

    def logs(
        self, rank: int = 0, stream: Stream = "stderr", attempt: int | None = None
    ) -> str:
        """Return what a rank printed.

        Parameters
        ----------
        rank
            Global rank.
        stream
            ``stdout`` or ``stderr``.
        attempt
            Number of the attempt; None for the newest.

        Returns
        -------
        str
            Empty as long as the rank has not printed anything.

        Raises
        ------
        ConfigError
            If the run has no such rank, stream or attempt.
        """
        number = self.attempt if attempt is None else attempt
        _check_one_of("rank", rank, range(self.config.gpus * self.config.nnodes))
        _check_one_of("attempt", number, range(self.attempt + 1))
        _check_one_of("stream", stream, get_args(Stream))
        files = self.paths.rank(number, rank)
        path = files.stdout if stream == "stdout" else files.stderr
        try:
            return path.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    @property
    def summary(self) -> RunSummary:
        """The run in numbers, computed now from its raw counts."""
        with damage_told(self.paths.root):
            return summarise_run(self.metrics(None), self.worker, self.record)

    def __repr__(self) -> str:
        try:
            state = str(self.state)
        except StoreError:
            state = "damaged"
        return f"<{type(self).__name__} {self.run_id} {state}>"

    def state_by(self, record: Line) -> RunState:
        """Return where the run stands, for who has just read its `record`."""
        with damage_told(self.paths.root):
            return self._told_state(record, self.submission)

    def _told_state(self, record: Line, submission: Line) -> RunState:
        if not submission and "state" not in record:
            if not self.paths.root.is_dir():
                message = f"{self.paths.root} is gone: the run's folder was removed."
                raise StoreError(message)
            return self._state_of_plain_torchrun()
        if submission.get("job"):
            return self._standing(submission, record).state
        launched = submission["attempt"] if submission else 0
        if record.get("attempt", -1) >= launched:
            state, supervisor = RunState(record["state"]), record["supervisor"]
        else:
            state, supervisor = RunState.STARTING, submission["supervisor"]
        if state.is_final:
            return state
        alive = ProcessIdentity.from_dict(supervisor).is_alive()
        if alive is not False:
            return state
        # It may have ended properly between the two looks.
        state = RunState(self.record.get("state", RunState.LOST))
        return state if state.is_final else RunState.LOST

    def _standing(self, submission: Line, record: Line) -> Standing:
        # Imported here: no other run needs what asks Slurm.
        from nbkit.store.job_state import standing

        with damage_told(self.paths.root):
            return standing(self.paths, submission, record)

    def _state_of_plain_torchrun(self) -> RunState:
        worker = self.worker
        if worker.get("completed"):
            return RunState.FINISHED
        process = read_json(self.paths.rank(0, 0).process)
        if process is None:
            age_seconds = time.time() - self.paths.root.stat().st_mtime
            young = age_seconds < _SUBMITTED_WITHIN_SECONDS
            return RunState.STARTING if young else RunState.LOST
        if ProcessIdentity.from_dict(process).is_alive() is False:
            return RunState.LOST
        return RunState.RUNNING if worker else RunState.STARTING

    def _bytes(self, path: Path) -> bytes:
        try:
            return path.read_bytes()
        except OSError as error:
            raise store_error(path, error) from error


def create_run_folder(config: ExperimentConfig) -> RunPaths:
    """Make the folder of a new run and write its configuration.

    Raises
    ------
    StoreError
        If the store cannot be written.
    """
    moment = datetime.datetime.now(datetime.UTC)
    # To the millisecond, so that the order of ids is the order of launches.
    now = f"{moment:%Y%m%d-%H%M%S}{moment.microsecond // 1000:03d}"
    what = re.sub(r"[^a-z0-9]+", "-", config.title.lower())[:32]
    letters = "".join(secrets.choice("23456789abcdefghjkmnpqrstuvwxyz") for _ in "1234")
    root = runs_folder() / f"{now}-{what.strip('-') or 'run'}-{letters}"
    try:
        root.mkdir(parents=True)
        paths = RunPaths(root)
        paths.config.write_text(config.to_json() + "\n", encoding="utf-8")
    except OSError as error:
        raise store_error(root, error) from error
    return paths


def find_run_folder(run_id: str) -> Path:
    """Return the folder of a run, given its id or the end of it.

    Raises
    ------
    RunNotFoundError
        If no run, or more than one, is meant.
    """
    folder = runs_folder()
    if re.fullmatch(r"[\w-]+", run_id):
        if (folder / run_id).is_dir():
            return folder / run_id
        meant = [path for path in list_run_folders() if path.name.endswith(run_id)]
        if len(meant) == 1:
            return meant[0]
    else:
        meant = []
    found = f"{len(meant)} runs end so" if meant else "no run is called so"
    message = f"run_id={run_id!r}: {found} in {folder}; `nbkit runs` lists them."
    raise RunNotFoundError(message)


def list_run_folders() -> list[Path]:
    """Return every run's folder, newest first; whatever else lies there is ignored."""
    folder = runs_folder()
    try:
        with os.scandir(folder) as entries:
            names = [
                entry.name for entry in entries if is_id(entry.name) and entry.is_dir()
            ]
    except FileNotFoundError:
        return []
    return [folder / name for name in sorted(names, reverse=True)]


def _check_one_of(name: str, value: object, possible: Sequence[object]) -> None:
    if value in possible:
        return
    if isinstance(possible, range):
        listed = f"0 to {len(possible) - 1}" if len(possible) > 1 else "0"
    else:
        listed = ", ".join(map(str, possible))
    message = f"{name}={value!r} is not one of this run's ({listed}); use one of them."
    raise ConfigError(message)
