"""What a study calls of the rooms above it, by the name of its kind.

Reports import studies: a study can only reach them by name when it has run. The names
are fixed here, and are never what an imported file asks for.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from nbkit.study.stored_study import StoredStudy

_BEFORE = {"storage": "nbkit.study.storage_data"}
"""By kind, the module whose ``before_start(plan, data)`` is called."""

_REPORTS = {
    "chexnet": "nbkit.study.chexnet",
    "concurrent_jobs": "nbkit.study.concurrent_jobs",
    "inference": "nbkit.study.inference",
    "input_pipeline": "nbkit.study.input_pipeline",
    "precision": "nbkit.study.precision",
    "scaling": "nbkit.study.scaling",
    "storage": "nbkit.study.storage",
    "time_to_accuracy": "nbkit.study.time_to_accuracy",
}
"""By kind, the module whose ``report(study)`` makes the report."""


def before_start(
    kind: str | None, plan: Mapping[str, Any], arm: Mapping[str, Any]
) -> dict[str, str]:
    """Do what has to be done before a start; return tags for its record."""
    module = _BEFORE.get(kind or "")
    # On another machine nothing can be done, and its page cache is unknown.
    if module is None or arm.get("engine", "local") != "local":
        return {}
    return importlib.import_module(module).before_start(plan, arm["data"])


def report_of_its_kind(study: StoredStudy) -> Any:
    """Return the `Report` that the module of the study's kind makes."""
    module = _REPORTS.get(study.kind or "", "nbkit.study.report_arms")
    return importlib.import_module(module).report(study)


def headline_so_far(study: StoredStudy) -> str:
    """Return the answer and first table of what has finished."""
    return importlib.import_module("nbkit.study.report_study").headline(study)


def repeats_needed(study: StoredStudy) -> str:
    """Return how many repeats the study is estimated to need, in words."""
    return importlib.import_module("nbkit.study.arms").arms_of(study).needed_sentence
