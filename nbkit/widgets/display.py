"""Display of a run, a list of runs or a comparison at the end of a cell.

`register` tells IPython the names of the types; nothing more is imported before one of
them is shown. A run gets its live view where there are widgets, and a picture below it:
a saved notebook has no kernel that could fill the view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nbkit.widgets import completion
from nbkit.widgets.frontend import has_widgets, kernel_is_idle

if TYPE_CHECKING:
    from nbkit.launch.run import Run, RunList


def register(shell: Any) -> None:
    """Let a kernel's IPython show nbkit's objects, and complete its calls."""
    shell.events.register("pre_run_cell", lambda _: kernel_is_idle.clear())
    shell.events.register("post_run_cell", lambda _: kernel_is_idle.set())
    formatter = shell.display_formatter
    whole = formatter.ipython_display_formatter
    whole.for_type_by_name("nbkit.launch.run", "Run", _show_run)
    whole.for_type_by_name("nbkit.launch.run", "RunList", _show_runs)
    html = formatter.formatters["text/html"]
    html.for_type_by_name(
        "nbkit.reproduction.differences", "Comparison", _comparison_html
    )
    html.for_type_by_name(
        "nbkit.reproduction.outcome", "Reproduction", _reproduction_html
    )
    html.for_type_by_name("nbkit.store.summary", "RunSummary", _summary_html)
    html.for_type_by_name("nbkit.studies.study", "Study", _study_html)
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
