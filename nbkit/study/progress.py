"""Progress of a study, for a person who watches and for the notebook that is saved.

In a notebook one line is overwritten in place while a run goes on, and every run that
ended leaves a line of plain text. Each overwrite is a message to papermill, which
saves the notebook only when it hears something.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from IPython.core.getipython import get_ipython
from IPython.display import display

from nbkit import statistics
from nbkit.launch.run import Run
from nbkit.store.metrics import JsonLinesReader
from nbkit.store.progress import queue_words
from nbkit.store.record import RunState

__all__ = ["Progress"]

_IN_PLACE_SECONDS = 1.0
"""Between two overwrites in a notebook."""

_LINE_SECONDS = 5.0
"""Between two lines in a terminal."""


class Progress:
    """Shows how far a study has come.

    Parameters
    ----------
    title
        What is being done.
    total
        How many runs there will be.
    quiet
        Show nothing.
    """

    def __init__(self, title: str, total: int, *, quiet: bool = False) -> None:
        self._title = title
        self._total = total
        self._quiet = quiet
        self._number = 0
        self._label = ""
        self._latest: dict[str, Any] = {}
        self._reader: JsonLinesReader | None = None
        self._began = self._run_began = time.monotonic()
        self._shown_at = 0.0
        self._line = None if quiet else _line_in_place()

    def start(self, label: str) -> None:
        """Say which run comes now."""
        self._number += 1
        self._label = label
        self._latest, self._reader = {}, None
        self._run_began = time.monotonic()
        self._shown_at = 0.0
        self._show("starting")

    def poll(self, run: Run) -> None:
        """Say how far the run is, from time to time."""
        self._reader = self._reader or JsonLinesReader(run.paths.metrics)
        for line in self._reader.read():
            if line["kind"] in ("step", "allreduce", "inference"):
                self._latest = line
        period = _LINE_SECONDS if self._line is None else _IN_PLACE_SECONDS
        if time.monotonic() - self._shown_at >= period:
            self._show(_position(self._latest, run) or _state(run))

    def end(self, run: Run, label: str | None = None) -> None:
        """Leave a line about a run that ended.

        Parameters
        ----------
        label
            Which of several that came at once; None if it came alone.
        """
        self._label = label or self._label
        if not self._quiet:
            seconds = time.monotonic() - self._run_began
            _print(f"{self._head()}: {_result(run)} ({seconds:.0f} s)")

    def say(self, sentence: str) -> None:
        """Leave a line between two runs; an empty one leaves none."""
        if sentence and not self._quiet:
            _print(sentence)

    def close(self) -> None:
        """Say that all is done."""
        seconds = time.monotonic() - self._began
        runs = "1 run" if self._number == 1 else f"{self._number} runs"
        text = f"{self._title}: {runs} in {seconds:.0f} s"
        if self._line is not None:
            self._line.update(_plain(text), raw=True)
        elif not self._quiet:
            _print(text)

    def _head(self) -> str:
        return f"[{self._number}/{self._total}] {self._label}"

    def _show(self, text: str) -> None:
        self._shown_at = time.monotonic()
        seconds = self._shown_at - self._run_began
        line = f"{self._head()}: {text} ({seconds:.0f} s)"
        if self._line is not None:
            self._line.update(_plain(f"{self._title} {line}"), raw=True)
        elif not self._quiet:
            _print(line)


def _position(line: dict[str, Any], run: Run) -> str | None:
    if not line:
        return None
    if line["kind"] == "allreduce":
        return f"message of {line['message_bytes']:,} bytes"
    if line["kind"] == "inference":
        [timing] = statistics.latency_timings([line]).values()
        rate = timing.images_per_second
        return f"batches of {timing.batch_size:,}, {rate:,.0f} images/s"
    rate = line["images"] / line["step_time_seconds"]
    of = f" of {run.config.steps:,}" if run.config.steps else ""
    warmup = ", warm-up" if line["warmup"] else ""
    return f"step {line['step']:,}{of}, {rate:,.0f} images/s{warmup}"


def _state(run: Run) -> str:
    """Return the state; of a run that waits for devices, its place and why."""
    queue = run.queue
    return str(run.state) if queue is None else f"queued, {queue_words(queue)}"


def _result(run: Run) -> str:
    state = run.state
    if state is not RunState.FINISHED:
        cause = run.cause or {}
        rank = "" if cause.get("rank") is None else f" on rank {cause['rank']}"
        return f"{state}{rank}: {cause.get('message')}"
    timings = map(statistics.allreduce_timing, run.metrics("allreduce"))
    best = max((t.bus_bandwidth_bytes_per_second for t in timings), default=None)
    if best is not None:
        return f"finished, up to {best / 1e9:.2f} GB/s bus bandwidth"
    rate = run.summary.images_per_second
    return "finished" if rate is None else f"finished, {rate:,.1f} images/s"


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _plain(text: str) -> dict[str, str]:
    return {"text/plain": text}


def _line_in_place() -> Any:
    """Return a display that can be overwritten; None outside a notebook."""
    shell = get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    return display(_plain(""), raw=True, display_id=True)
