"""Runs in the store: create, find and read them. Readers never write."""

from __future__ import annotations

import datetime
import os
import re
import secrets
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from nbkit.errors import ConfigError, RunNotFoundError, StoreError
from nbkit.reading import read_end, read_file
from nbkit.store.liveness import is_stale, is_supervised, unknown_text
from nbkit.store.metrics import read_json_lines, store_error, without_repeats
from nbkit.store.nonfinite import FiniteFollower, NonFinite
from nbkit.store.ownership import FOLDER_MODE, imported_from, is_of_others, write_file
from nbkit.store.paths import RunPaths, is_id, runs_folder
from nbkit.store.private import make_store
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import (
    RunState,
    damage_words,
    of_newest_attempt,
    read_json,
    report_corruption,
)
from nbkit.store.redaction import refuse_secrets
from nbkit.visible import visible

if TYPE_CHECKING:
    from nbkit.config import ExperimentConfig
    from nbkit.store.job_state import Standing
    from nbkit.store.summary import RunSummary


_KINDS = (
    *("step", "log", "evaluation", "checkpoint", "allreduce", "inference"),
    *("nonfinite", "returned"),
)
_SUBMITTED_WITHIN_SECONDS = 60
"""A folder that was not submitted by then lost its launcher in between."""

# A text of these takes 48 MiB to make.
_LINE_BEFORE = re.compile(r"^[^\n]*\r(?=[^\n])|\r(?=\n|\Z)", re.MULTILINE)
"""What a carriage return lets the next text take the place of."""
_LOG_BYTES = 16 << 20

Line = dict[str, Any]
Stream = Literal["stdout", "stderr"]


class StoredRun:
    """A run, read from its files."""

    def __init__(self, root: Path | str) -> None:
        self._root = root

    @cached_property
    def paths(self) -> RunPaths:
        """The run's files."""
        return RunPaths(Path(self._root))  # at first use: a list has many runs

    @property
    def run_id(self) -> str:
        """The run's id, which is its folder's name."""
        return self.paths.run_id

    @cached_property
    def config(self) -> ExperimentConfig:
        """Configuration of the run, marked if other users may have written it."""
        # Imported here: to list runs needs none of its 6 MiB.
        from nbkit.config import ExperimentConfig

        with report_corruption(self.paths.root):
            config = ExperimentConfig.from_store(read_file(self.paths.config))
        if is_of_others(self.paths.imported, [self.paths.root, self.paths.config]):
            return config.coming_from(self.paths.root)
        return config

    @property
    def record(self) -> Line:
        """Current content of the record; empty before the supervisor writes it."""
        return read_json(self.paths.record) or {}

    @property
    def submission(self) -> Line:
        """Who launched the newest attempt; empty with plain torchrun."""
        return read_json(self.paths.submission) or {}

    @property
    def worker(self) -> Line:
        """Values from the ranks, such as devices; empty before their rendezvous."""
        return read_json(self.paths.worker) or {}

    @property
    def state(self) -> RunState:
        """Current state of the run; ``lost`` if its supervisor exited prematurely."""
        return self.state_by(self.record)

    @property
    def cause(self) -> Line | None:
        """Why the run is failed, stopped, lost or unknown; None in other states."""
        record, submission = self.record, self.submission
        if submission.get("job"):
            return self._standing(submission, record).cause
        state = self.state_by(record)
        if state is RunState.LOST:
            who = "the supervisor" if submission else "rank 0"  # plain torchrun
            why = (
                f"{who} exited without a final record (killed, or the host failed); "
                "metrics up to the last step are kept"
            )
        elif state is RunState.UNKNOWN:
            attempt = of_newest_attempt(record, submission) or submission
            why = unknown_text(self.paths, attempt.get("supervisor") or {})
        else:
            return of_newest_attempt(record, submission).get("cause")
        log = str(self.supervisor_log)
        return {"kind": str(state), "rank": None, "message": why, "log": log}

    @property
    def queue(self) -> Line | None:
        """What a queued run waits for; None if it is not queued.

        ``position`` and ``length`` of the queue (None if unknown), ``reason``
        in words, and ``since`` (UTC, ISO 8601).
        """
        record, submission = self.record, self.submission
        if submission.get("job"):
            return self._standing(submission, record).queue
        with report_corruption(self.paths.root):
            return of_newest_attempt(record, submission).get("queue")

    @property
    def imported_from(self) -> str | None:
        """The host that the run was imported from; None if it was not."""
        return imported_from(self.paths.imported)

    @property
    def study_id(self) -> str | None:
        """Id of the study that launched the run; None if no study did."""
        study_id = (self.submission.get("tags") or {}).get("study")
        return study_id if isinstance(study_id, str) and is_id(study_id) else None

    @property
    def supervisor_log(self) -> Path:
        """Log of the newest supervisor, which may have made several attempts."""
        submitted = int(self.submission.get("attempt", 0))
        # Each requeue of a Slurm job has a supervisor; others restart the ranks alone.
        newest = self.attempt if self.submission.get("job") else submitted
        logs = map(self.paths.supervisor_log, range(newest, submitted, -1))
        return next(filter(Path.exists, logs), self.paths.supervisor_log(submitted))

    @property
    def attempt(self) -> int:
        """The newest attempt's number, counted from 0."""
        # A supervisor may have started the ranks again, on its own.
        sources = (self.submission, self.record)
        return max(int(source.get("attempt", 0)) for source in sources)

    @property
    def profile(self) -> Path | None:
        """Trace of ``profile=True``, for ui.perfetto.dev; None if it does not exist."""
        return self.paths.profile if self.paths.profile.exists() else None

    def metrics(self, kind: str | None = "step") -> list[Line]:
        """Return the recorded lines of a kind (None: all kinds), oldest first.

        Notes
        -----
        A resumed attempt starts at its checkpoint; the lines it repeats replace
        the earlier ones, so that steps never run backwards.
        """
        _check_one_of("kind", kind, (*_KINDS, None))
        with report_corruption(self.paths.root):
            lines = without_repeats(read_json_lines(self.paths.metrics))
            return [line for line in lines if kind in (None, line["kind"])]

    @property
    def events(self) -> list[Line]:
        """Events of the run, oldest first."""
        return read_json_lines(self.paths.events)

    def logs(
        self, rank: int = 0, stream: Stream = "stderr", attempt: int | None = None
    ) -> str:
        """Return the output of a rank.

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
            Empty if the rank has not printed anything. Output longer than 16 MiB is cut
            at its start, with a line that says so. A progress bar shows its last state.

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
            data, left_out = read_end(path, _LOG_BYTES)
        except FileNotFoundError:
            return ""
        text = data.decode(errors="replace").replace("\r\n", "\n")
        text = _LINE_BEFORE.sub("", text)
        if left_out:
            text = f"[nbkit: first {left_out:,} bytes omitted; see {path}]\n{text}"
        return text

    @property
    def summary(self) -> RunSummary:
        """Measurements of the run, computed from its raw records on each access."""
        # Imported here: to list and launch runs needs none of its statistics.
        from nbkit.store.summary import summarise_run

        with report_corruption(self.paths.root):
            return summarise_run(self.metrics(None), self.worker, self.record)

    def summary_until(self, step: int) -> RunSummary:
        """Return the summary, but with losses up to ``step`` only."""
        from nbkit.store.summary import summarise_run

        with report_corruption(self.paths.root):
            lines = self.metrics(None)
            summary = summarise_run(lines, self.worker, self.record)
            first = [line for line in lines if line["step"] <= step]
            until = summarise_run(first, self.worker, self.record)
        losses = {"final_loss": until.final_loss, "mean_loss": until.mean_loss}
        return replace(summary, **losses)

    @property
    def nonfinite(self) -> NonFinite | None:
        """First step with NaN or Inf, as in `summary`, but read much faster."""
        with report_corruption(self.paths.root):
            return FiniteFollower(self.paths.metrics).first_nonfinite(self.worker)

    def __repr__(self) -> str:
        try:
            state = str(self.state)
        except StoreError as error:
            state = damage_words(self.paths.root, error)
        with suppress(StoreError):  # a damaged file tells nothing
            divergence = self.nonfinite
            state = state if divergence is None else f"{state}, {divergence}"
        if self.imported_from is not None:
            state += f", imported from {self.imported_from}"
        return visible(f"<{type(self).__name__} {self.run_id} {state}>")

    def state_by(self, record: Line) -> RunState:
        """Return the state of the run, given its current `record`."""
        with report_corruption(self.paths.root):
            return self._recorded_state(record, self.submission)

    def _recorded_state(self, record: Line, submission: Line) -> RunState:
        if not submission and "state" not in record:
            if not self.paths.root.is_dir():
                message = f"{self.paths.root}: the run's folder was removed."
                raise StoreError(message)
            return self._state_of_plain_torchrun()
        if submission.get("job"):
            return self._standing(submission, record).state
        if attempt := of_newest_attempt(record, submission):
            state, supervisor = RunState(attempt["state"]), attempt["supervisor"]
        else:
            state, supervisor = RunState.STARTING, submission["supervisor"]
        if state.is_final:
            return state
        alive = is_supervised(self.paths, supervisor)
        if alive is None and is_stale(self.paths):
            return RunState.UNKNOWN
        if alive is not False:
            return state
        # It may have ended properly between the two looks.
        attempt = of_newest_attempt(self.record, submission)
        state = RunState(attempt.get("state", RunState.LOST))
        return state if state.is_final else RunState.LOST

    def _standing(self, submission: Line, record: Line) -> Standing:
        # Imported here: no other run needs what asks Slurm.
        from nbkit.store.job_state import standing

        with report_corruption(self.paths.root):
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


def create_run_folder(config: ExperimentConfig) -> RunPaths:
    """Make the folder of a new run and write its configuration; all or nothing."""
    refuse_secrets(config.model_dump(mode="json"))
    moment = datetime.datetime.now(datetime.UTC)
    # To the millisecond, so that the order of ids is the order of launches.
    now = f"{moment:%Y%m%d-%H%M%S}{moment.microsecond // 1000:03d}"
    what = re.sub(r"[^a-z0-9]+", "-", config.title.lower())[:32]
    letters = "".join(secrets.choice("23456789abcdefghjkmnpqrstuvwxyz") for _ in "1234")
    root = runs_folder() / f"{now}-{what.strip('-') or 'run'}-{letters}"
    paths = RunPaths(root)
    try:
        make_store()
        # The store may be a team's; what is executed is its owner's alone.
        runs_folder().mkdir(exist_ok=True)
        root.mkdir(FOLDER_MODE)
        try:
            write_file(paths.config, f"{config.to_json()}\n".encode())
        except BaseException:
            shutil.rmtree(root, ignore_errors=True)
            raise
    except OSError as error:
        raise store_error(root, error) from error
    return paths


def find_run_folder(run_id: str) -> Path:
    """Return the folder of a run, given its id or the end of it."""
    folder = runs_folder()
    meant: list[Path] = []
    if re.fullmatch(r"[0-9A-Za-z_-]{1,255}", run_id):
        if (folder / run_id).is_dir():
            return folder / run_id
        meant = [path for path in list_run_folders() if path.name.endswith(run_id)]
        if len(meant) == 1:
            return meant[0]
    problem = f"{len(meant)} runs have this ending" if meant else "no run has this id"
    message = f"run_id={run_id!r}: {problem} in {folder}. Use a full id (`nbkit runs`)."
    raise RunNotFoundError(message)


def list_run_folders() -> list[Path]:
    """Return every run's folder, newest first; anything else there is ignored."""
    folder = runs_folder()
    return [folder / name for name in list_run_names()]


def list_run_names() -> list[str]:
    """Return every run's id, newest first."""
    try:
        with os.scandir(runs_folder()) as entries:
            names = [
                entry.name for entry in entries if is_id(entry.name) and entry.is_dir()
            ]
    except FileNotFoundError:
        return []
    return sorted(names, reverse=True)


def _check_one_of(name: str, value: object, possible: Sequence[object]) -> None:
    if value in possible:
        return
    if isinstance(possible, range):
        listed = f"0 to {len(possible) - 1}" if len(possible) > 1 else "0"
    else:
        listed = ", ".join(map(str, possible))
    message = f"{name}={value!r} is not valid for this run. Use {listed}."
    raise ConfigError(message)
