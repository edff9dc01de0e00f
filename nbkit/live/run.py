"""`LiveRun`: the view of one run, complete at first and then as changes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from nbkit import clock, statistics
from nbkit.errors import StoreError
from nbkit.live.devices import LiveDevices
from nbkit.live.log_tail import LINES, LogTail
from nbkit.live.metrics import LiveMetrics
from nbkit.live.running_time import running_time
from nbkit.live.series import Series
from nbkit.reading import file_stamp
from nbkit.review.diagnosis import diagnosis_of
from nbkit.review.facts import put_together
from nbkit.store.paths import RunPaths
from nbkit.store.private import program_fields
from nbkit.store.progress import (
    RATE_STEPS,
    WITH_STEPS,
    end_words,
    progress,
    total_steps,
)
from nbkit.store.record import (
    RunState,
    device_uuids,
    job_nodes,
    read_json,
    report_corruption,
)
from nbkit.store.stored_runs import StoredRun
from nbkit.store.summary import ranks_of_window
from nbkit.visible import visible

_MOST_TRACEBACK_CHARACTERS = 20_000
_MOST_DEVICES = 64
_MOST_CURVES = 12
"""Of what the ranks write, unless a viewer asks for more."""
_MOST_FIELDS = 500
_MOST_VALUE_CHARACTERS = 500

Values = dict[str, Any]


class LiveRun:
    """Follows the files of one run; used by one thread at a time.

    Parameters
    ----------
    run
        Any run of the store, under way or ended.
    """

    def __init__(self, run: StoredRun) -> None:
        self.run = run
        self.state = RunState.STARTING
        """As of the last `read`."""
        self.metrics = LiveMetrics(run.paths.metrics)
        self.devices = LiveDevices(run.paths.system_folder)
        self.more_curves: frozenset[str] = frozenset()
        """Names that viewers have chosen beyond the first twelve."""
        self._record: Values = {}
        self._record_stamp: tuple[int, int, int] | None = None
        self._worker: Values = {}
        self._worker_stamp: tuple[int, int, int] | None = None
        self._config = read_json(run.paths.config) or {}
        self._fields = _fields(self._config, run.paths)
        self._parts: Values = {}
        self._sent: Values = {}
        self._sent_series: dict[str, Series] = {}

    @property
    def attempt(self) -> int:
        """The newest one's number as of the last `read`, counted from 0."""
        return self._parts["head"]["attempt"]

    def read(self, limit_seconds: float = float("inf")) -> bool:
        """Read what is new in all files.

        Parameters
        ----------
        limit_seconds
            Time limit for reading metrics; the next call reads the rest.

        Returns
        -------
        bool
            Whether nothing is left to read, now or ever: the run has ended.

        Raises
        ------
        StoreError
            If a file is there and cannot be read, or is damaged.
        """
        with report_corruption(self.run.paths.root):
            return self._read(limit_seconds)

    def _read(self, limit_seconds: float) -> bool:
        if not self.run.paths.root.is_dir():
            message = f"run {self.run.run_id} was removed from the store."
            raise StoreError(message)
        # First: what a run writes before its end is read after its end was seen.
        self.state = self.run.state
        if (stamp := file_stamp(self.run.paths.record)) != self._record_stamp:
            self._record, self._record_stamp = self.run.record, stamp
        if (stamp := file_stamp(self.run.paths.worker)) != self._worker_stamp:
            self._worker, self._worker_stamp = self.run.worker, stamp
        has_all = self.metrics.read(limit_seconds)
        # A sampler reads the GPUs of its attempt, with all instances of each.
        uuids = self._device_uuids()
        own = uuids if any(uuid.startswith("MIG-") for uuid in uuids) else []
        self.devices.read(own, is_over=self.state.is_final)
        # Slurm may have put it on other nodes.
        nodes = job_nodes(self._record)
        rows = [row for row in self.devices.rows() if not nodes or row["host"] in nodes]
        self._parts = {
            "head": self._head(),
            "numbers": self._numbers(has_all=has_all),
            "devices": rows[:_MOST_DEVICES],
            "more_devices": max(0, len(rows) - _MOST_DEVICES),
            "config": self._fields,
            "curves": [*self.metrics.series, *self.devices.series],
            "num_omitted": len(self.metrics.omitted),
        }
        return has_all and self.state.is_final

    def snapshot(self) -> Values:
        """Return everything that is shown, as of the last `read`."""
        series = {name: line.points() for name, line in self._series().items()}
        return {**self._parts, "series": series}

    def take_changes(self) -> Values:
        """Return what has changed since the last call, in the form of `snapshot`.

        ``series`` has for each line what `Series.take_changes` says; lines that are
        shown no more are None.
        """
        changed = {
            name: part
            for name, part in self._parts.items()
            if self._sent.get(name) != part
        }
        self._sent = dict(self._parts)
        series: Values = {}
        now = self._series()
        for name, line in now.items():
            change = line.take_changes()
            if self._sent_series.get(name) is not line:
                change = {"from": 0, "points": line.points()}
            if change is not None:
                series[name] = change
        series.update(dict.fromkeys(self._sent_series.keys() - now.keys()))
        self._sent_series = now
        return {**changed, "series": series} if series else changed

    def log(
        self, rank: int, stream: str, text: str = "", num_lines: int = LINES
    ) -> LogTail:
        """Return the end of what a rank printed in the newest attempt.

        Parameters
        ----------
        rank
            Global rank; -1 is the supervisor, whose log is one for both streams.
        stream
            ``stdout`` or ``stderr``.
        text
            Only lines with this text.
        num_lines
            How many of the last ones.
        """
        attempt = self.run.attempt
        if rank < 0:
            return LogTail(self.run.supervisor_log, text, num_lines)
        files = self.run.paths.rank(attempt, rank)
        path = files.stdout if stream == "stdout" else files.stderr
        return LogTail(path, text, num_lines)

    def _series(self) -> dict[str, Series]:
        of_ranks = self.metrics.series
        first = set(itertools.islice(of_ranks, _MOST_CURVES))
        sent = first | self.more_curves | self.devices.series.keys()
        every = {**of_ranks, **self.devices.series}
        return {name: line for name, line in every.items() if name in sent}

    def _device_uuids(self) -> list[str]:
        uuids = device_uuids(self._record, self._worker)
        # Lines have the GPUs of earlier attempts too, and none of another's instances.
        is_leased = bool((self._record.get("launch") or {}).get("devices"))
        return [it for it in uuids if is_leased or it.startswith("MIG-")]

    def _head(self) -> Values:
        record, state = self._record, self.state
        ran = running_time(record, self.run.submission, state)
        has_cause = state.is_final or state is RunState.UNKNOWN
        cause = self.run.cause if has_cause else None
        is_resumable = state.is_final and state is not RunState.FINISHED
        # The button does not ask whether an imported run is trusted.
        host = self.run.imported_from
        is_resumable = is_resumable and host is None
        # By which this machine's clock was set since the run began.
        clock_set_seconds = round(clock.now() - clock.now(record.get("clock")))
        num_nodes = int(self._config.get("nnodes") or 1)
        queue = self.run.queue if state is RunState.QUEUED else None
        name = record.get("name") or self._config.get("name")
        return {
            "run_id": self.run.run_id,
            "name": name and visible(name),
            "state": str(state),
            "is_final": state.is_final,
            "attempt": self.run.attempt,
            # The number of an attempt that was not submitted is not used.
            "num_attempts": len(record.get("attempts") or ()),
            "queue": queue and {**queue, "reason": visible(str(queue["reason"]))},
            "nonfinite": self._nonfinite(),
            "imported_from": host and visible(host),
            "cause": _cause(state, cause),
            "ran_seconds": ran.ended_seconds,
            # A page compares it with its own time.
            "runs_since": ran.since and ran.since + clock_set_seconds,
            "task": self._config.get("task", "train"),
            "num_nodes": num_nodes,
            "num_ranks": int(self._config.get("gpus") or 1) * num_nodes,
            "num_devices": len(self._device_uuids()),
            "device_type": (record.get("launch") or {}).get("device_type"),
            "folder": str(self.run.paths.root),
            "log": (cause or {}).get("log")
            or str(self.run.paths.attempt(self.run.attempt)),
            "can_resume": is_resumable and self.run.paths.has_checkpoint,
            "has_curves": self.run.paths.tensorboard.is_dir(),
            "study_id": self.run.study_id,
        }

    def _nonfinite(self) -> str | None:
        """Return where it stopped being finite, in words, as far as it was read."""
        # Before the ranks have met, only the configuration tells what it is.
        worker = {"task": self._config.get("task"), **self._worker}
        nonfinite = self.metrics.finite.first_nonfinite(worker)
        return None if nonfinite is None else str(nonfinite)

    def _numbers(self, *, has_all: bool) -> Values:
        metrics = self.metrics
        total = self._total_steps()
        name, value = metrics.accuracy or (None, None)
        newest = self._newest(has_all=has_all)
        is_running = self.state is RunState.RUNNING and has_all
        ended = self.state.is_final and has_all
        return {
            "step": newest["step"],
            "total_steps": total,
            "ended_by": self._worker.get("ended_by"),
            "seconds_left": metrics.seconds_left(total) if is_running else None,
            "loss": newest["loss"],
            "images_per_second": newest["images_per_second"],
            "rate_steps": newest["rate_steps"],
            "resumed_seconds": metrics.resumed_seconds.copy(),
            "updates_skipped": metrics.updates_skipped,
            "measured": metrics.measured() if ended else None,
            "data_wait_share": self._data_wait_share(),
            **self._bottleneck(newest["images_per_second"]),
            "accuracy_name": name,
            "accuracy": value,
            "accuracy_step": metrics.evaluation.get("step"),
            "checkpoint_step": metrics.checkpoint_step,
            "logged": metrics.logged.copy(),
            "is_complete": has_all,
            "read_step": metrics.step,
            "damaged_lines": metrics.damaged_lines,
        }

    def _newest(self, *, has_all: bool) -> Values:
        """Return step, loss and rate now, also while the lines before are read."""
        metrics = self.metrics
        values = {
            "step": metrics.step,
            "loss": metrics.loss,
            "images_per_second": metrics.images_per_second,
            "rate_steps": metrics.rate_steps,
        }
        # A newest line that is damaged tells nothing.
        with suppress(ValueError, LookupError, TypeError):
            if not has_all:
                values.update(progress(self.run.paths.metrics))
                # What is left to read is more than that.
                values["rate_steps"] = RATE_STEPS if metrics.rate_steps else 0
        return values

    def _data_wait_share(self) -> float | None:
        """Return the share over all ranks once they have written it, else of rank 0."""
        metrics = self.metrics
        worker = self._worker if self.state.is_final else {}
        ranks = ranks_of_window(worker, metrics.num_measured)
        if not ranks:
            return metrics.data_wait_share
        return statistics.share(
            [rank["data_wait_seconds"] for rank in ranks],
            [rank["step_time_seconds"] for rank in ranks],
        )

    def _bottleneck(self, images_per_second: float | None) -> Values:
        """Return the bottleneck as estimated from step times."""
        # Their sums are at hand; reading the samples would take longer.
        metrics = self.metrics
        if metrics.num_measured < (1 if self.state.is_final else RATE_STEPS):
            return {"bottleneck": None, "suggestion": None}
        facts = put_together(
            self._config,
            # Till the end, the newest attempt's ranks have written nothing.
            self._worker,
            self._record,
            steps=metrics.num_measured,
            images_per_second=images_per_second,
            rank_0=metrics.rank_0,
            update_share=metrics.update_share,
        )
        diagnosis = diagnosis_of(facts, self.run.run_id)
        return {
            "bottleneck": diagnosis.bottleneck or "none detected",
            "suggestion": diagnosis[0].action if diagnosis else None,
        }

    def _total_steps(self) -> int | None:
        total = self.metrics.total_steps or total_steps(self._config)
        epochs = self._config.get("epochs")
        if total is None and epochs and self._config.get("task", "train") in WITH_STEPS:
            per_epoch = self._worker.get("steps_per_epoch")
            return epochs * per_epoch if per_epoch else None
        return total


def _fields(config: Values, paths: RunPaths) -> Values:
    """Return a configuration as text: what is not at its default, and the rest."""
    # Imported here: it imports what checks configurations.
    from nbkit.config.fields import changed_fields, read_fields

    changed = program_fields(paths) | changed_fields(config)
    fields = read_fields(config)
    rest = {name: fields[name] for name in fields if name not in changed}
    return {"changed": _texts(changed.items()), "default": _texts(rest.items())}


def _texts(fields: Iterable[tuple[str, Any]]) -> list[list[str]]:
    return [
        [visible(name), visible(f"{value}")[:_MOST_VALUE_CHARACTERS]]
        for name, value in fields
    ][:_MOST_FIELDS]


def _cause(state: str, cause: Values | None) -> Values | None:
    if cause is None:
        return None
    # A wrong value takes one line; where it was noticed, the log says.
    trace = cause.get("traceback")
    if cause.get("kind") == "config" and not _shows_users_code(trace or ""):
        trace = None
    if trace and len(trace) > _MOST_TRACEBACK_CHARACTERS:
        # The exception itself is at the end.
        trace = f"…{trace[-_MOST_TRACEBACK_CHARACTERS:]}"
    stacks = cause.get("stacks") or {}
    message = str(cause.get("message") or "")
    return {
        "rank": cause.get("rank"),
        # What a page prints in bold before the message.
        "begin": visible(end_words(state, cause).removesuffix(message)),
        "message": visible(message, lines=True),
        "traceback": trace and visible(trace, lines=True),
        "log": cause.get("log"),
        "stacks": {
            rank: visible(str(stack)[-_MOST_TRACEBACK_CHARACTERS:], lines=True)
            for rank, stack in list(stacks.items())[:_MOST_DEVICES]
        },
    }


def _shows_users_code(trace: str) -> bool:
    """Return whether a traceback has a line of the user's, or another exception."""
    frames = re.findall(r"^  (\S.*)", trace, re.MULTILINE)
    own = re.match(r'File ".*/nbkit/', frames[0]) if frames else None
    is_chained = trace.count("Traceback (most recent call last)") > 1
    return is_chained or not all(own and frame.startswith(own[0]) for frame in frames)
