"""What a notebook shows when a cell ends with a run, a list of runs or a comparison.

`register` tells IPython the names of the types; nothing more is imported before one of
them is shown. A run gets its live view where there are widgets, and below it a picture
of its own: a saved notebook has no kernel that could fill the view.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from nbkit.widgets import completion

if TYPE_CHECKING:
    from pathlib import Path

    from nbkit.launch.run import Run, RunList
    from nbkit.store.runs import StoredRun
    from nbkit.widgets.view import RunView

__all__ = ["has_widgets", "look_again", "register", "view_of"]

_views: dict[Path, RunView] = {}
"""One for each run: it is read once, however often it is shown."""


def register(shell: Any) -> None:
    """Let a kernel's IPython show nbkit's objects, and complete its calls.

    Parameters
    ----------
    shell
        The `InteractiveShell` of a kernel.
    """
    formatter = shell.display_formatter
    whole = formatter.ipython_display_formatter
    whole.for_type_by_name("nbkit.launch.run", "Run", _show_run)
    whole.for_type_by_name("nbkit.launch.run", "RunList", _show_runs)
    html = formatter.formatters["text/html"]
    html.for_type_by_name("nbkit.analysis.compare", "Comparison", _comparison_html)
    html.for_type_by_name(
        "nbkit.analysis.reproduction", "Reproduction", _reproduction_html
    )
    html.for_type_by_name("nbkit.store.summary", "RunSummary", _summary_html)
    html.for_type_by_name("nbkit.study.study", "Study", _study_html)
    completion.register(shell)


def has_widgets() -> bool:
    """Return whether somebody looks at this cell's output in a page with widgets.

    JupyterLab, Notebook 7, VS Code and others that are built on JupyterLab's services
    name the cell in each request to execute (``cellId``), and leave the user's name
    empty. Papermill, nbclient and nbconvert execute through jupyter_client, which names
    no cell and always fills in a user; what they save would be a widget that nobody can
    show. In a terminal there is no request at all.
    """
    module = sys.modules.get("IPython.core.getipython")
    shell = module.get_ipython() if module else None
    if shell is None or not hasattr(shell, "kernel"):
        return False
    request = shell.get_parent() or {}
    names_cell = "cellId" in (request.get("metadata") or {})
    return names_cell or (request.get("header") or {}).get("username") == ""


def view_of(run: Run) -> RunView:
    """Return the view of a run, the same one each time unless it was closed."""
    from nbkit.widgets.view import RunView

    for root, old in list(_views.items()):
        if not old.is_open:
            del _views[root]
    view = _views.get(run.paths.root)
    if view is None:
        view = _views[run.paths.root] = RunView(run)
    return view


def look_again(run: StoredRun) -> None:
    """Let the view of a run that had ended look at once, if there is one."""
    view = _views.get(run.paths.root)
    if view is not None and view.is_open:
        view.look()


def _show_run(run: Run) -> None:
    from IPython.display import display

    from nbkit.widgets.picture import show_picture

    if has_widgets():
        view = view_of(run)
        display(view)
        view.announce()
    show_picture(run)


def _show_runs(runs: RunList) -> None:
    from nbkit.widgets.table import show_table

    show_table(runs, with_widgets=has_widgets())


def _reproduction_html(reproduction: Any) -> str:
    from nbkit.widgets.comparison import reproduction_html

    return reproduction_html(reproduction)


def _summary_html(summary: Any) -> str:
    from nbkit.widgets.picture import summary_html

    return summary_html(summary)


def _study_html(study: Any) -> str:
    from nbkit.widgets.study import study_html

    return study_html(study)


def _comparison_html(comparison: Any) -> str:
    from nbkit.widgets.comparison import comparison_html

    return comparison_html(comparison)
