"""nbkit: launch, record and compare multi-GPU training runs from notebooks.

Everything public is here and is imported when it is first used, so that ``import
nbkit`` is quick and loads neither torch nor any part of Jupyter.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbkit.config import AllReduceConfig as AllReduceConfig
    from nbkit.config import DaliConfig as DaliConfig
    from nbkit.config import ExperimentConfig as ExperimentConfig
    from nbkit.config import InferenceConfig as InferenceConfig
    from nbkit.config import LoaderConfig as LoaderConfig
    from nbkit.config import ManualConfig as ManualConfig
    from nbkit.config import SlurmConfig as SlurmConfig
    from nbkit.errors import NbkitError as NbkitError
    from nbkit.estimates.forecast import estimate as estimate
    from nbkit.launch.accelerate_launcher import notebook_launcher as notebook_launcher
    from nbkit.launch.program import function as function
    from nbkit.launch.program import module as module
    from nbkit.launch.program import script as script
    from nbkit.launch.run import Run as Run
    from nbkit.launch.run import attach as attach
    from nbkit.launch.run import runs as runs
    from nbkit.launch.start import launch as launch
    from nbkit.launch.supervision.leftovers import sweep as sweep
    from nbkit.questions.study_report import report as report
    from nbkit.questions.trial import try_ as try_
    from nbkit.recipes.catalogue import recipe as recipe
    from nbkit.references.rows import published as published
    from nbkit.reports.auditor import audit as audit
    from nbkit.reports.mlperf_log import mllog as mllog
    from nbkit.reproduction.comparison import compare as compare
    from nbkit.reproduction.repetition import reproduce as reproduce
    from nbkit.store.bundle import export as export
    from nbkit.store.bundle_import import import_bundle as import_bundle
    from nbkit.store.record import RunState as RunState
    from nbkit.studies.notebooks import notebook as notebook
    from nbkit.studies.parameters import params as params
    from nbkit.studies.study import Study as Study
    from nbkit.widgets.form import ExperimentForm as ExperimentForm
    from nbkit.worker.rank_context import context as context
    from nbkit.worker.rank_context import log as log
    from nbkit.worker.trainer_callback import TrainerCallback as TrainerCallback


_HOMES = {
    "AllReduceConfig": "nbkit.config",
    "DaliConfig": "nbkit.config",
    "ExperimentConfig": "nbkit.config",
    "ExperimentForm": "nbkit.widgets.form",
    "InferenceConfig": "nbkit.config",
    "LoaderConfig": "nbkit.config",
    "ManualConfig": "nbkit.config",
    "NbkitError": "nbkit.errors",
    "Run": "nbkit.launch.run",
    "RunState": "nbkit.store.record",
    "SlurmConfig": "nbkit.config",
    "Study": "nbkit.studies.study",
    "TrainerCallback": "nbkit.worker.trainer_callback",
    "attach": "nbkit.launch.run",
    "audit": "nbkit.reports.auditor",
    "compare": "nbkit.reproduction.comparison",
    "context": "nbkit.worker.rank_context",
    "estimate": "nbkit.estimates.forecast",
    "export": "nbkit.store.bundle",
    "function": "nbkit.launch.program",
    "import_bundle": "nbkit.store.bundle_import",
    "launch": "nbkit.launch.start",
    "log": "nbkit.worker.rank_context",
    "mllog": "nbkit.reports.mlperf_log",
    "module": "nbkit.launch.program",
    "notebook": "nbkit.studies.notebooks",
    "notebook_launcher": "nbkit.launch.accelerate_launcher",
    "params": "nbkit.studies.parameters",
    "published": "nbkit.references.rows",
    "recipe": "nbkit.recipes.catalogue",
    "report": "nbkit.questions.study_report",
    "reproduce": "nbkit.reproduction.repetition",
    "runs": "nbkit.launch.run",
    "script": "nbkit.launch.program",
    "sweep": "nbkit.launch.supervision.leftovers",
    "try_": "nbkit.questions.trial",
}

_ROOMS = ("datasets", "readspeed", "statistics")
"""Reached as attributes, each with its own public names."""

# Type checkers read the imports above.
__all__ = [*_HOMES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from nbkit.packages import version

        return version()
    if name in _ROOMS:
        return importlib.import_module(f"nbkit.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    from difflib import get_close_matches

    names = {known.lower(): known for known in __dir__()}
    within = [known for known in names if known.endswith(name.lower())]
    near = within or get_close_matches(name.lower(), names, 1)
    hint = ", ".join(repr(names[known]) for known in near)
    message = f"module 'nbkit' has no attribute {name!r}"
    message += f". Did you mean {hint}?" if hint else ""
    raise AttributeError(message)


def __dir__() -> list[str]:
    return [*__all__, *_ROOMS, "__version__"]


def _show_in_notebooks() -> None:
    """Let the IPython of a kernel show runs by the widgets; elsewhere do nothing."""
    # Not imported: where no IPython runs, there is none to tell.
    module = sys.modules.get("IPython.core.getipython")
    shell = module.get_ipython() if module else None
    if hasattr(shell, "kernel"):
        importlib.import_module("nbkit.widgets.display").register(shell)


_show_in_notebooks()
