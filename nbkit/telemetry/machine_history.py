"""History of this machine, from the files that samplers of runs wrote.

A file of a day holds hundreds of megabytes. Of the newest half hour every line is read;
before it, one of each half minute, found by seeking.
"""

from __future__ import annotations

import json
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from nbkit.reading import LINE_BYTES, open_regular, parse_object

_DENSE_SECONDS = 30 * 60
_THIN_STEP_SECONDS = 30.0
_LONGEST_SECONDS = 24 * 3600
_BATCH_ROWS = 200
_BATCHES_AHEAD = 2

_TOO_LARGE = 1e18
_TIME = re.compile(rb'"t": ?([0-9]{1,12}(?:\.[0-9]+)?)')
"""The first time in a line of a sampler is that of the line."""


def read_history(path: Path, now: float) -> Iterator[list[Any]]:
    """Yield rows of a sampler's file, oldest first."""
    with open_regular(path) as file:
        begin = now - _LONGEST_SECONDS
        file.seek(_find(file, begin))
        taken_t = float("-inf")
        while (line := file.readline(LINE_BYTES)).endswith(b"\n"):
            t = _time_of(line)
            if t is None or t < begin:
                continue
            is_dense = t > now - _DENSE_SECONDS
            if not is_dense and t < taken_t + _THIN_STEP_SECONDS:
                continue
            values = _values(line)
            if values is None:
                continue
            yield [t, *values]
            if not is_dense:
                following = min(t + _THIN_STEP_SECONDS, now - _DENSE_SECONDS)
                file.seek(_find(file, following, file.tell()))
            taken_t = t


def _find(file: BinaryIO, t: float, start: int = 0) -> int:
    """Return where to begin to read: at a line's begin, before time `t`, near it."""
    low, high = start, file.seek(0, os.SEEK_END)
    while high - low > 1 << 16:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline(LINE_BYTES)
        t_middle = _next_time(file)
        if t_middle is None or t_middle >= t:
            high = middle
        else:
            low = middle
    if low == start:
        return start
    file.seek(low)
    file.readline(LINE_BYTES)
    return file.tell()


def _next_time(file: BinaryIO) -> float | None:
    while (line := file.readline(LINE_BYTES)).endswith(b"\n"):
        t = _time_of(line)
        if t is not None:
            return t
    return None


def _time_of(line: bytes) -> float | None:
    match = _TIME.search(line, 0, 200)
    return None if match is None else float(match[1])


def _values(line: bytes) -> list[Any] | None:
    """Return the values of GPUs and host; None if it is not a sample."""
    try:
        sample = parse_object(line)
        if sample.get("kind") != "sample":
            return None
        gpus = {
            str(gpu.get("uuid") or gpu["index"]): _levels(gpu) for gpu in sample["gpus"]
        }
        host = sample["host"]
        used = _number(host.get("memory_used_bytes"))
        free = _number(host.get("memory_available_bytes"))
        cpu = _number(host.get("cpu_percent"))
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None
    total = None if used is None or free is None else used + free
    return [gpus, [cpu, _percent(used, total)]]


def _levels(gpu: dict[str, Any]) -> list[float | None]:
    used, total, power, limit = (
        _number(gpu.get(name))
        for name in (
            "memory_used_bytes",
            "memory_total_bytes",
            "power_watts",
            "power_limit_watts",
        )
    )
    utilization = _number(gpu.get("gpu_utilization_percent"))
    return [utilization, _percent(used, total), _percent(power, limit)]


def _number(value: Any) -> float | None:
    """Return a number as it is, and None for NaN, for one too large, and for text."""
    return value if isinstance(value, int | float) and abs(value) < _TOO_LARGE else None


def _percent(part: float | None, whole: float | None) -> float | None:
    # A whole of next to nothing makes it infinite.
    return _number(round(100 * part / whole, 1)) if part is not None and whole else None


class HistoryThread(threading.Thread):
    """Reads files in a separate thread: a file system may be slow, or silent."""

    def __init__(self, wake_fd: int) -> None:
        super().__init__(name="past", daemon=True)
        self._wake_fd = wake_fd
        self._paths: queue.Queue[str] = queue.Queue()
        self._batches: queue.Queue[list[Any]] = queue.Queue(_BATCHES_AHEAD)
        self._is_started = False

    def ask(self, paths: list[str]) -> None:
        """Read these files too."""
        for path in paths:
            self._paths.put(path)
        if not self._is_started:
            self._is_started = True
            self.start()

    def take(self) -> list[Any] | None:
        """Return rows, at most 200; None if there are none yet."""
        try:
            return self._batches.get_nowait()
        except queue.Empty:
            return None

    def run(self) -> None:
        """Read file after file; a file that cannot be read is named on stderr."""
        while True:
            path = self._paths.get()
            rows: list[Any] = []
            try:
                for row in read_history(Path(path), time.time()):
                    rows.append(row)
                    if len(rows) == _BATCH_ROWS:
                        self._hand_over(rows)
                        rows = []
            except Exception as error:  # noqa: BLE001 - the other files are read
                reason = getattr(error, "strerror", None) or repr(error)
                message = f"{path} cannot be read ({reason}). Its history is missing.\n"
                sys.stderr.write(message)
            if rows:
                self._hand_over(rows)

    def _hand_over(self, rows: list[Any]) -> None:
        self._batches.put(rows)
        os.write(self._wake_fd, b"\0")
