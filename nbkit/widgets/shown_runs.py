"""Pictures of runs in a notebook, replaced when a run has ended or runs again.

One thread checks all runs that were shown.
"""

from __future__ import annotations

import math
import threading
import time
import traceback
import uuid
from contextlib import suppress
from pathlib import Path

from IPython.core.getipython import get_ipython
from IPython.display import DisplayHandle, display

from nbkit.errors import NbkitError
from nbkit.launch.run import Run
from nbkit.live.run import LiveRun
from nbkit.widgets.frontend import has_widgets
from nbkit.widgets.picture import Bundle, picture
from nbkit.widgets.views import look_again

_POLL_SECONDS = 0.5
_AGAIN_SECONDS = 5.0
"""Until a run that could not be read is checked again."""
_FIRST_SECONDS = 0.5
"""A page that shows a run of a million steps does not wait until all are read."""


def show_picture(run: Run) -> None:
    """Show a run's picture, and another in its place when the run has ended."""
    live = LiveRun(run)
    # Without a page, what is shown now may be all that is ever saved.
    is_whole = not has_widgets() and run.state.is_final
    is_over = live.read(math.inf if is_whole else _FIRST_SECONDS)
    _shown_runs.show(live, is_over=is_over)


class _ShownRuns:
    """Runs that have pictures, and the thread that replaces them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown: dict[Path, _Shown] = {}
        self._thread: threading.Thread | None = None

    def show(self, live: LiveRun, *, is_over: bool) -> None:
        """Show a run, of which `LiveRun.read` has said whether it is over, here too."""
        root = live.run.paths.root
        bundle = picture(live)
        with self._lock:
            known = self._shown.get(root)
            # All pictures of a run have one id, and are replaced together.
            display_id = known.handle.display_id if known else f"nbkit-{uuid.uuid4()}"
            handle = display(bundle, raw=True, display_id=display_id)
            if handle is None:
                return  # a terminal replaces nothing
            self._shown[root] = _Shown(live, handle, is_over=is_over)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._watch, name="nbkit pictures", daemon=True
                )
                self._thread.start()
                if shell := get_ipython():
                    shell.events.register("post_run_cell", self._after_cell)

    def _watch(self) -> None:
        while True:
            time.sleep(_POLL_SECONDS)
            for shown in self._everything():
                shown.look()

    def _after_cell(self, _result: object) -> None:
        for shown in self._everything():
            shown.look()
            shown.send_again()

    def _everything(self) -> list[_Shown]:
        with self._lock:
            return list(self._shown.values())


class _Shown:
    """A run that has pictures."""

    def __init__(self, live: LiveRun, handle: DisplayHandle, *, is_over: bool) -> None:
        self.run = live.run
        self.handle = handle
        self.live: LiveRun | None = None if is_over else live
        """None while an ended run's pictures show its end."""
        self._lock = threading.Lock()
        self._newest: Bundle | None = None
        """What was sent since the last cell ended."""
        self._attempt = live.attempt
        self._stamp: tuple[int, ...] = ()
        self._why: str | None = None
        """What the pictures show instead of the run, which could not be read."""
        self._next_look = 0.0

    def look(self) -> None:
        """Replace the pictures if they are old."""
        with self._lock:
            if time.monotonic() < self._next_look:
                return
            try:
                self._look()
            except (OSError, NbkitError) as error:
                self._look_later(str(error))
            except Exception:  # noqa: BLE001 - the other pictures continue
                self._look_later(traceback.format_exc(limit=-3))

    def send_again(self) -> None:
        """Send what has replaced the pictures as output of the cell that runs now.

        papermill and nbconvert drop what a thread sends between two cells.
        """
        with self._lock:
            if self._newest is not None:
                self.handle.update(self._newest, raw=True)
                self._newest = None

    def _look(self) -> None:
        if self.live is None:
            self._look_whether_it_goes_on()
        elif self.run.state.is_final and self.live.read(_FIRST_SECONDS):
            self._replace(picture(self.live))
            self._attempt, self.live = self.live.attempt, None
        elif self._why is not None:
            self.live.read(_FIRST_SECONDS)
            self._replace(picture(self.live))
        self._why = None

    def _look_whether_it_goes_on(self) -> None:
        """Show a run again that was resumed, or that Slurm has started again."""
        stamp = self._written()
        if stamp == self._stamp:
            return
        if self.run.attempt > self._attempt or not self.run.state.is_final:
            live = LiveRun(self.run)
            live.read(_FIRST_SECONDS)
            self._replace(picture(live))
            self.live = live
            # The view has looked away from a run that had ended.
            look_again(self.run)
        self._stamp = stamp

    def _look_later(self, why: str) -> None:
        """Wait until a fault may have passed; the pictures of an end stay as they are.

        A file server may be away for a moment, or a ticket for it run out.
        """
        self._next_look = time.monotonic() + _AGAIN_SECONDS
        if self.live is not None and why != self._why:
            self._why = why
            self._replace({"text/plain": why})

    def _replace(self, bundle: Bundle) -> None:
        self._newest = bundle
        self.handle.update(bundle, raw=True)

    def _written(self) -> tuple[int, ...]:
        """Return what changes when the run is submitted or started again."""
        paths = self.run.paths
        stamp: tuple[int, ...] = ()
        for file in (paths.submission, paths.record):
            with suppress(FileNotFoundError):
                status = file.stat()
                stamp += status.st_ino, status.st_mtime_ns
        return stamp


_shown_runs = _ShownRuns()
