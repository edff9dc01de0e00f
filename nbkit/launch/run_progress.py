"""Progress of a run as lines of text, for code that waits for it.

In a notebook or terminal one line is overwritten in place. Each overwrite is a message
to papermill, which saves the notebook only when it hears something. Elsewhere, such as
in the log of a job, lines follow each other on standard error.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nbkit import statistics
from nbkit.plural import plural
from nbkit.statistics.quantities import figures
from nbkit.store.metrics import JsonLinesReader
from nbkit.store.nonfinite import FiniteReading
from nbkit.store.progress import end_words, queue_words, total_steps
from nbkit.store.record import DAMAGE_ERRORS, RunState, read_json
from nbkit.store.stored_runs import StoredRun
from nbkit.visible import visible

IN_PLACE_SECONDS = 1.0
"""Between two overwrites in a notebook."""
_LOG_SECONDS = 60.0
"""Between two lines of a log, while the state stays."""
_SILENT_SECONDS = 10.0
"""A shorter wait leaves no line in a log."""


class RunPosition:
    """Follows a run's metrics, and says where it is."""

    def __init__(self) -> None:
        self._latest: dict[str, Any] = {}
        self._finite = FiniteReading()
        self._reader: JsonLinesReader | None = None

    def read(self, run: StoredRun) -> None:
        """Read what is new."""
        self._reader = self._reader or JsonLinesReader(run.paths.metrics)
        for line in self._reader.read():
            self._finite.take(line)
            kinds = ("step", "log", "allreduce", "inference")
            if line["kind"] in kinds and not line.get("beside_steps"):
                self._latest = line

    def words(self, run: StoredRun) -> str:
        """Return where the run is as of the last `read`."""
        # First: a resumed run that waits has steps of an earlier attempt.
        queue = run.queue
        words = f"queued, {queue_words(queue)}" if queue else None
        words = words or _position(self._latest, run) or str(run.state)
        divergence = self._finite.first_nonfinite(read_json(run.paths.config) or {})
        return words if divergence is None else f"{words}, {divergence}"


def progress_display() -> Callable[[StoredRun], None] | None:
    """Return what shows a run, to be called often; None without a standard error."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    line = line_in_place() or (_TerminalLine() if is_terminal else None)
    if line is None:
        return None if sys.stderr is None else _show_in_log()
    position = RunPosition()
    began = time.monotonic()
    shown_at = 0.0

    def show(run: StoredRun) -> None:
        nonlocal shown_at
        position.read(run)
        over = run.state.is_final
        now = time.monotonic()
        if over or now - shown_at >= IN_PLACE_SECONDS:
            shown_at = now
            words = result(run) if over else position.words(run)
            text = f"{run.run_id}: {words} ({now - began:.0f} s)"
            line.update(plain(text), raw=True)
            if over and isinstance(line, _TerminalLine):
                line.end()

    return show


def _show_in_log() -> Callable[[StoredRun], None]:
    """Return what leaves a line at each change of state, and after each minute."""
    position = RunPosition()
    began = shown_at = time.monotonic()
    shown_state: RunState | None = None

    def show(run: StoredRun) -> None:
        nonlocal shown_at, shown_state
        state, now = run.state, time.monotonic()
        is_due = state is not shown_state or now - shown_at >= _LOG_SECONDS
        if now - began < _SILENT_SECONDS or not is_due:
            return
        shown_at, shown_state = now, state
        # What cannot be read now ends no wait.
        try:
            position.read(run)
            words = result(run) if state.is_final else position.words(run)
        except DAMAGE_ERRORS:
            words = state.value
        line = visible(f"{run.run_id}: {words} ({now - began:.0f} s)")
        # A closed error stream does not end the wait.
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    return show


def line_in_place() -> Any:
    """Return a display that can be overwritten; None outside a notebook."""
    # Not imported: where no IPython runs, there is none to tell.
    module = sys.modules.get("IPython.core.getipython")
    shell = module.get_ipython() if module else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display(plain(""), raw=True, display_id=True)


class _TerminalLine:
    """A line of a terminal, on standard error, that is overwritten."""

    def update(self, bundle: dict[str, Any], *, raw: bool) -> None:
        """Show a text in place of the one before, cut to the terminal's width."""
        width = shutil.get_terminal_size().columns - 1
        # Back to the beginning of the line, and clear it.
        sys.stderr.write(f"\r\x1b[K{bundle['text/plain'][:width]}")
        sys.stderr.flush()

    def end(self) -> None:
        """Leave the line as it is."""
        sys.stderr.write("\n")
        sys.stderr.flush()


def plain(text: str) -> dict[str, str]:
    """Return a text as a notebook's output."""
    return {"text/plain": visible(text)}


def result(run: StoredRun) -> str:
    """Return how a run has ended, in words."""
    state = run.state
    if state is not RunState.FINISHED:
        return end_words(state, run.cause or {})
    timings = map(statistics.allreduce_timing, run.metrics("allreduce"))
    best = max((t.bus_bandwidth_bytes_per_second for t in timings), default=None)
    if best is not None:
        return f"finished, maximum bus bandwidth {best / 1e9:.2f} GB/s"
    summary = run.summary
    rate, divergence = summary.images_per_second, summary.nonfinite
    # First: what does not train has a speed that means nothing.
    words = "finished" if divergence is None else f"finished, {divergence}"
    if rate is not None:
        words += f", {figures(rate)} images/s"
    return f"{words}; {summary.bursts}" if summary.bursts else words


def _position(line: dict[str, Any], run: StoredRun) -> str | None:
    if not line:
        return None
    if line["kind"] == "allreduce":
        return f"message of {line['message_bytes']:,} bytes"
    if line["kind"] == "inference":
        [timing] = statistics.latency_timings([line]).values()
        rate = timing.images_per_second
        batch = plural(timing.batch_size, "image")
        return f"batches of {batch}, {figures(rate)} images/s"
    if line["kind"] == "log":
        of = f" of {line['total_steps']:,}" if line.get("total_steps") else ""
        loss = line["values"].get("loss")
        end = "" if loss is None else f", loss {figures(loss)}"
        return f"step {line['step']:,}{of}{end}"
    rate = line["images"] / line["step_time_seconds"]
    # Another version of nbkit may have launched it, with other fields.
    steps = line.get("total_steps") or total_steps(read_json(run.paths.config) or {})
    of = f" of {steps:,}" if steps else ""
    warmup = ", warm-up" if line["warmup"] else ""
    return f"step {line['step']:,}{of}, {figures(rate)} images/s{warmup}"
