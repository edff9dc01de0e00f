"""Runs that a notebook shows: their live views, and the pictures below them.

One thread checks all runs that were shown, and replaces the picture of a run that has
ended or runs again; while it goes on, the picture is at most a minute old.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path

from IPython.core.getipython import get_ipython
from IPython.display import DisplayHandle, display

from nbkit.errors import NbkitError
from nbkit.launch.run import Run
from nbkit.live.run import LiveRun
from nbkit.widgets.frontend import has_widgets, sending_without_activity
from nbkit.widgets.picture import Bundle, picture
from nbkit.widgets.view import RunView

_POLL_SECONDS = 0.5
_FIRST_SECONDS = 0.5
"""A page that shows a run of a million steps does not wait until all are read."""
_RENEW_SECONDS = 45.0
"""With what it takes to read and to send, less than a minute."""

_views: dict[Path, RunView] = {}
"""One for each run: it is read once, however often it is shown."""


def view_of(run: Run) -> RunView:
    """Return the view of a run, the same one each time unless it was closed."""
    for root, view in list(_views.items()):
        if not view.is_open:
            del _views[root]
    if run.paths.root not in _views:
        _views[run.paths.root] = RunView(run)
    return _views[run.paths.root]


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
        self._shown: dict[Path, ShownRun] = {}
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
            self._shown[root] = ShownRun(live, handle, is_over=is_over)
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
            for shown in self._list_shown():
                # A fault in one picture must not end the thread of all others.
                with suppress(Exception), sending_without_activity():
                    shown.look()

    def _after_cell(self, _result: object) -> None:
        for shown in self._list_shown():
            shown.look()
            shown.send_again()

    def _list_shown(self) -> list[ShownRun]:
        with self._lock:
            return list(self._shown.values())


class ShownRun:
    """A run that has pictures."""

    def __init__(
        self,
        live: LiveRun,
        handle: DisplayHandle,
        *,
        is_over: bool,
        renew_seconds: float = _RENEW_SECONDS,
    ) -> None:
        self.run = live.run
        self.handle = handle
        self.live: LiveRun | None = None if is_over else live
        """None while an ended run's pictures show its end."""
        self._lock = threading.Lock()
        self._newest: Bundle | None = None
        """What was sent since the last cell ended."""
        self._attempt = live.attempt
        self._stamp: tuple[int, ...] = ()
        self._renew_seconds = renew_seconds
        self._renewed_at = time.monotonic()
        live.take_changes()

    def look(self) -> None:
        """Replace the pictures if they are old.

        They stay while the run cannot be read: a file server may be away for a moment.
        """
        with self._lock, suppress(OSError, NbkitError):
            if self.live is None:
                self._show_resumed()
            elif self.run.state.is_final:
                if self.live.read(_FIRST_SECONDS):
                    self._replace(picture(self.live))
                    self._attempt, self.live = self.live.attempt, None
            elif time.monotonic() - self._renewed_at >= self._renew_seconds:
                self.live.read(_FIRST_SECONDS)
                if self.live.take_changes():
                    self._replace(picture(self.live))
                self._renewed_at = time.monotonic()

    def send_again(self) -> None:
        """Send what has replaced the pictures as output of the cell that runs now.

        papermill and nbconvert drop what a thread sends between two cells.
        """
        with self._lock:
            if self._newest is not None:
                self.handle.update(self._newest, raw=True)
                self._newest = None

    def _show_resumed(self) -> None:
        """Show a run again that was resumed, or that Slurm has started again."""
        files = self.run.paths.submission, self.run.paths.record
        stamp = tuple(file.stat().st_mtime_ns for file in files if file.exists())
        if stamp == self._stamp:
            return
        if self.run.attempt > self._attempt or not self.run.state.is_final:
            live = LiveRun(self.run)
            live.read(_FIRST_SECONDS)
            live.take_changes()
            self._replace(picture(live))
            self.live, self._renewed_at = live, time.monotonic()
            # The view has looked away from a run that had ended.
            view = _views.get(self.run.paths.root)
            if view is not None and view.is_open:
                view.look()
        self._stamp = stamp

    def _replace(self, bundle: Bundle) -> None:
        self._newest = bundle
        self.handle.update(bundle, raw=True)


_shown_runs = _ShownRuns()
