"""The views of runs that this kernel shows."""

from __future__ import annotations

from pathlib import Path

from nbkit.launch.run import Run
from nbkit.store.stored_runs import StoredRun
from nbkit.widgets.view import RunView

_views: dict[Path, RunView] = {}
"""One for each run: it is read once, however often it is shown."""


def view_of(run: Run) -> RunView:
    """Return the view of a run, the same one each time unless it was closed."""
    for root, old in list(_views.items()):
        if not old.is_open:
            del _views[root]
    view = _views.get(run.paths.root)
    if view is None:
        view = _views[run.paths.root] = RunView(run)
    return view


def look_again(run: StoredRun) -> None:
    """Let the view of a run that had ended read it immediately, if there is one."""
    view = _views.get(run.paths.root)
    if view is not None and view.is_open:
        view.look()
