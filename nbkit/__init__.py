"""nbkit: launch, record and compare multi-GPU training runs from notebooks.

Everything public is here and is imported when it is first used, so that ``import
nbkit`` is quick and loads neither torch nor any part of Jupyter.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbkit.analysis.mllog import mllog
    from nbkit.analysis.published import published
    from nbkit.config import (
        AllReduceConfig,
        DaliConfig,
        ExperimentConfig,
        InferenceConfig,
        LoaderConfig,
        ManualConfig,
        SlurmConfig,
    )
    from nbkit.errors import NbkitError
    from nbkit.launch.notebook_launcher import notebook_launcher
    from nbkit.launch.run import Run, attach, runs
    from nbkit.launch.start import launch
    from nbkit.launch.sweep import sweep
    from nbkit.store.bundle import export
    from nbkit.store.bundle_import import import_bundle
    from nbkit.store.record import RunState
    from nbkit.study.audit import audit
    from nbkit.study.compare import compare
    from nbkit.study.estimate import estimate
    from nbkit.study.notebooks import notebook
    from nbkit.study.parameters import params
    from nbkit.study.recipes import recipe
    from nbkit.study.report_study import report
    from nbkit.study.reproduce import reproduce
    from nbkit.study.study import Study
    from nbkit.widgets.form import ExperimentForm
    from nbkit.worker.context import context, log

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
    "Study": "nbkit.study.study",
    "attach": "nbkit.launch.run",
    "audit": "nbkit.study.audit",
    "compare": "nbkit.study.compare",
    "context": "nbkit.worker.context",
    "estimate": "nbkit.study.estimate",
    "export": "nbkit.store.bundle",
    "import_bundle": "nbkit.store.bundle_import",
    "launch": "nbkit.launch.start",
    "log": "nbkit.worker.context",
    "mllog": "nbkit.analysis.mllog",
    "notebook": "nbkit.study.notebooks",
    "notebook_launcher": "nbkit.launch.notebook_launcher",
    "params": "nbkit.study.parameters",
    "published": "nbkit.analysis.published",
    "recipe": "nbkit.study.recipes",
    "report": "nbkit.study.report_study",
    "reproduce": "nbkit.study.reproduce",
    "runs": "nbkit.launch.run",
    "sweep": "nbkit.launch.sweep",
}

_ROOMS = ("datasets", "readspeed", "statistics")
"""Reached as attributes, each with its own public names."""

__all__ = [
    "AllReduceConfig",
    "DaliConfig",
    "ExperimentConfig",
    "ExperimentForm",
    "InferenceConfig",
    "LoaderConfig",
    "ManualConfig",
    "NbkitError",
    "Run",
    "RunState",
    "SlurmConfig",
    "Study",
    "attach",
    "audit",
    "compare",
    "context",
    "estimate",
    "export",
    "import_bundle",
    "launch",
    "log",
    "mllog",
    "notebook",
    "notebook_launcher",
    "params",
    "published",
    "recipe",
    "report",
    "reproduce",
    "runs",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from nbkit.packages import version

        return version()
    if name in _ROOMS:
        return importlib.import_module(f"nbkit.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    message = f"module 'nbkit' has no attribute {name!r}"
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
