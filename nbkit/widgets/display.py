"""Display of a run, a list of runs or a comparison at the end of a cell.

`register` tells IPython the names of the types; nothing more is imported before one of
them is shown. A run gets its live view where there are widgets, and a picture below it:
a saved notebook has no kernel that could fill the view.
"""

from __future__ import annotations

import importlib
from functools import partial
from typing import TYPE_CHECKING, Any

from nbkit.widgets import completion
from nbkit.widgets.frontend import has_widgets, kernel_is_idle

if TYPE_CHECKING:
    from nbkit.launch.run import Run, RunList

_HTML = {
    ("nbkit.reproduction.differences", "Comparison"): ("comparison", "comparison_html"),
    ("nbkit.reproduction.outcome", "Reproduction"): ("comparison", "reproduction_html"),
    ("nbkit.store.summary", "RunSummary"): ("picture", "summary_html"),
    ("nbkit.studies.study", "Study"): ("study", "study_html"),
}
"""What makes the page of a type: a file of this package, and its function."""


def register(shell: Any) -> None:
    """Let a kernel's IPython show nbkit's objects, and complete its calls."""
    shell.events.register("pre_run_cell", lambda _: kernel_is_idle.clear())
    shell.events.register("post_run_cell", lambda _: kernel_is_idle.set())
    formatter = shell.display_formatter
    whole = formatter.ipython_display_formatter
    whole.for_type_by_name("nbkit.launch.run", "Run", _show_run)
    whole.for_type_by_name("nbkit.launch.run", "RunList", _show_runs)
    html = formatter.formatters["text/html"]
    for (module, name), (file, function) in _HTML.items():
        html.for_type_by_name(module, name, partial(_html, file, function))
    completion.register(shell)


def _show_run(run: Run) -> None:
    from IPython.display import display

    from nbkit.widgets.shown_runs import show_picture, view_of

    if has_widgets():
        view = view_of(run)
        display(view)
        view.announce()
    show_picture(run)


def _show_runs(runs: RunList) -> None:
    from nbkit.widgets.table import show_table

    show_table(runs, with_widgets=has_widgets())


def _html(file: str, function: str, shown: Any) -> str:
    return getattr(importlib.import_module(f"nbkit.widgets.{file}"), function)(shown)
