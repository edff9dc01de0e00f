"""Cause of a failed attempt: the first rank that failed, and how."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbkit.errors import StoreError
from nbkit.launch.supervision.gpu_cause import attribute_to_gpus
from nbkit.launch.supervision.rank_error import RankError
from nbkit.launch.supervision.ranks import WatchedRank, signal_name
from nbkit.reading import open_regular, read_end
from nbkit.store.metrics import store_error
from nbkit.store.paths import RunPaths
from nbkit.store.record import read_json

_LAST_WORDS_BYTES = 16_384
"""A traceback with its source lines takes a few of these."""

_CURRENT_THREAD = "Current thread "
_FRAMES = re.compile(r".*\n?(?:  .*\n?)*")
"""Its first line and the indented ones below; what the rank prints may follow."""
_MOST_STACKS_BYTES = 262_144
_LINE_CHARACTERS = 2_000
_STACK_CHARACTERS = 4_096

_PORT_IN_USE = re.compile("EADDRINUSE|address already in use", re.IGNORECASE)
_OUT_OF_MEMORY = (
    "the host or its cgroup ran out of memory; use a smaller batch or fewer workers"
)
_WHO = {
    "owner exit": "owner exit (the notebook or script ended; on_owner_exit='keep' "
    "keeps a run active)",
    "slurm": "Slurm (scancel, preemption or an administrator)",
    "time limit": "its time limit",
}
"""By who asks: how a message names it."""


@dataclass(frozen=True)
class _Candidate:
    time: float
    rank: WatchedRank
    error: RankError | None

    @property
    def is_consequence(self) -> bool:
        """Whether this looks like the echo of another rank's end."""
        if self.error is None:
            return self.rank.returncode == -signal.SIGABRT
        return self.error.is_of_a_neighbour(self.rank.phase)


def failure_cause(
    ranks: Sequence[WatchedRank],
    paths: RunPaths,
    attempt: int,
    finished_ranks: Sequence[int] = (),
) -> dict[str, Any]:
    """Return the cause of a failed attempt, from the earliest failure."""
    first = _first_failure(ranks, paths, attempt)
    if first is None:
        unknown = make_cause("unknown", "no rank failed by itself")
        return attribute_to_gpus(unknown, paths)
    rank = first.rank
    where = {} if rank.node is None else {"node": rank.node}
    cause = _failure(first, paths, attempt)
    if first.is_consequence and finished_ranks:
        names = ", ".join(map(str, finished_ranks))
        cause["message"] += f" (ranks already finished: {names})"
    return attribute_to_gpus(cause, paths) | where


def lost_node_cause(
    what: str, ranks: Sequence[WatchedRank], paths: RunPaths, attempt: int
) -> dict[str, Any]:
    """Return the cause of an attempt that lost a node."""
    first = _first_failure(ranks, paths, attempt)
    if first is None or first.is_consequence:
        return make_cause("node", what)
    cause = failure_cause(ranks, paths, attempt)
    return cause | {"message": f"{cause['message']} (then: {what})"}


def _first_failure(
    ranks: Sequence[WatchedRank], paths: RunPaths, attempt: int
) -> _Candidate | None:
    ahead_seconds = _server_ahead_seconds(paths)
    candidates = (
        _candidate(rank, paths.rank(attempt, rank.rank).error, ahead_seconds)
        for rank in ranks
        if rank.returncode
    )
    # An echo of another rank's end is the cause only if all of them are echoes.
    return min(
        filter(None, candidates),
        key=lambda candidate: (candidate.is_consequence, candidate.time),
        default=None,
    )


def _failure(first: _Candidate, paths: RunPaths, attempt: int) -> dict[str, Any]:
    rank = first.rank
    log = paths.rank(attempt, rank.rank).stderr
    if first.error is not None:
        cause = _exception_cause(first.error, rank, log)
        return cause | {"traceback": _with_cells(cause["traceback"], paths)}
    code = rank.returncode or 0
    if code > 0 and (message := _disk_is_full(paths)):
        return make_cause("store", message, rank.rank, log)
    if code < 0:
        cause = _signal_cause(rank, signal_name(-code), log)
        return cause | {"traceback": _with_cells(_fatal_stack(log), paths)}
    message = f"exit code {code} without a Python exception"
    if last_line := _last_line(log):
        message += f": {last_line}"
    return make_cause("exit", message, rank.rank, log)


def read_stacks(log: Path, offset: int, paths: RunPaths) -> str:
    """Return the stacks of a rank and of its loading processes, each once."""
    try:
        with open_regular(log) as file:
            file.seek(offset)
            text = file.read(_MOST_STACKS_BYTES).decode(errors="replace")
    except OSError:
        return ""
    own, *loading = _current_threads(text) or [""]
    stacks = [own]
    # Below the line that has the thread's number.
    alike = Counter(thread.partition("\n")[2].strip() for thread in loading)
    for stack, count in alike.items():
        who = "A loading process" if count == 1 else f"{count} loading processes"
        stacks.append(f"{who} (most recent call first):\n  {stack}")
    return "\n".join(_with_cells(thread, paths) or "" for thread in stacks)


def _current_threads(stacks: str) -> list[str]:
    """Return the stacks of the threads that faulthandler calls the current ones."""
    _, *threads = stacks.split(_CURRENT_THREAD)
    own = [match[0] for thread in threads if (match := _FRAMES.match(thread))]
    return [(_CURRENT_THREAD + frames).rstrip()[:_STACK_CHARACTERS] for frames in own]


def stop_cause(
    ranks: Sequence[WatchedRank],
    request: dict[str, Any],
    paths: RunPaths,
    attempt: int,
    *,
    ready: bool,
) -> dict[str, Any]:
    """Return why and how an attempt was stopped."""
    # A rank that is not ready yet ends by the signal that asks it to stop, as does a
    # function that never asks; what waits for it can only be killed: nothing is lost.
    early = any(rank.returncode == -signal.SIGTERM for rank in ranks)
    forced = not early and any(rank.killed_by_us for rank in ranks)
    how = "immediately" if early else "after the current step"
    if not ready:
        how = f"before its ranks were {'ready' if ranks else 'started'}"
    if forced:
        how = "by force: its ranks did not end within the grace period"
    message = stopped_by(request, how)
    own = [
        rank
        for rank in ranks
        if rank.returncode not in (0, None, -signal.SIGTERM) and not rank.killed_by_us
    ]
    if own:
        failure = failure_cause(own, paths, attempt)["message"]
        message += f" (meanwhile: {failure})"
    return make_cause("stopped", message) | {
        "by": request["by"],
        "forced": forced,
    }


def stopped_by(request: dict[str, Any], how: str) -> str:
    """Return in words who has stopped a run, and how."""
    return f"stopped by {_WHO.get(request['by'], request['by'])}, {how}"


def _server_ahead_seconds(paths: RunPaths) -> float:
    """Return how far the clock that stamps files is ahead of the supervisor's."""
    try:
        with tempfile.TemporaryFile(dir=paths.root) as file:
            return os.fstat(file.fileno()).st_mtime - time.time()
    except OSError:
        return 0.0  # the disk is full, or the folder is gone: both clocks may agree


def _candidate(
    rank: WatchedRank, file: Path, ahead_seconds: float
) -> _Candidate | None:
    try:
        error = read_json(file)
    except StoreError:
        error = None  # The disk was full, or the rank was killed, as it was written.
    if error is not None:
        moment = file.stat().st_mtime - ahead_seconds
        return _Candidate(moment, rank, RankError.from_dict(error))
    if rank.killed_by_us or rank.ended_at is None:
        return None
    return _Candidate(rank.ended_at, rank, None)


def _exception_cause(error: RankError, rank: WatchedRank, log: Path) -> dict[str, Any]:
    kind, message = error.kind, error.message
    if _PORT_IN_USE.search(message):
        message += "; remove init_method and MASTER_PORT from the program to use the "
        message += "port that nbkit chose"
    if rank.kernel_ran_out_of_memory and error.has_lost_a_process:
        kind = "out_of_memory"
        message += f" (killed while {_OUT_OF_MEMORY})"
    cause = make_cause(kind, message, rank.rank, log)
    return cause | {"traceback": error.traceback}


def _signal_cause(rank: WatchedRank, name: str, log: Path) -> dict[str, Any]:
    if name == "SIGKILL" and rank.kernel_ran_out_of_memory:
        message = f"killed by SIGKILL while {_OUT_OF_MEMORY}"
        return make_cause("out_of_memory", message, rank.rank, log) | {"signal": name}
    message = f"killed by signal {name} (not sent by nbkit)"
    return make_cause("signal", message, rank.rank, log) | {"signal": name}


def _fatal_stack(log: Path) -> str | None:
    """Return the stack that Python prints when a signal ends it; None for SIGKILL."""
    try:
        text = read_end(log, _MOST_STACKS_BYTES)[0].decode(errors="replace")
    except OSError:
        return None
    _, header, report = text.rpartition("Fatal Python error: ")
    if not header:
        return None
    first, _, _ = report.partition("\n")
    *_, last = _current_threads(report) or [""]
    return f"{header}{first}\n\n{last}\n"


def _with_cells(traceback: str | None, paths: RunPaths) -> str | None:
    """Return a traceback in which cells have their numbers, not made-up file names."""
    if traceback is None:
        return None
    try:
        entry = read_json(paths.entry) or {}
    except StoreError:
        return traceback  # with made-up names is better than none
    for name, source in entry.get("sources", {}).items():
        if source["shown_as"] != name:
            traceback = traceback.replace(f'File "{name}"', source["shown_as"])
    return traceback


def make_cause(
    kind: str, message: str, rank: int | None = None, log: Path | None = None
) -> dict[str, Any]:
    """Return a cause as the record has it: a rank's, or no single one's."""
    return {
        "kind": kind,
        "rank": rank,
        "message": message,
        "traceback": None,
        "signal": None,
        "log": None if log is None else str(log),
    }


def _disk_is_full(paths: RunPaths) -> str | None:
    """Return what to say if not even a rank's last words found room."""
    free = shutil.disk_usage(paths.root).free
    if free >= _LAST_WORDS_BYTES:
        return None
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return str(store_error(paths.root, full))


def _last_line(log: Path) -> str:
    try:
        text = read_end(log, _LAST_WORDS_BYTES)[0].decode(errors="replace")
    except OSError:
        return ""
    *_, line = text.rstrip().splitlines() or [""]
    return line if len(line) <= _LINE_CHARACTERS else f"{line[:_LINE_CHARACTERS]}..."
