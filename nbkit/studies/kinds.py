"""What a study calls of the rooms above it, by the name of its kind.

Reports import studies: a study can only reach them by name when it has run. The names
are fixed here, and are never what an imported file asks for.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from nbkit.studies.stored_study import StoredStudy

_BEFORE = {"storage": "nbkit.questions.storage.cold_cache"}
"""By kind, the module whose ``before_start(plan, data)`` is called."""

_REPORTS = {
    "chexnet": "nbkit.questions.chexnet.page",
    "concurrent_jobs": "nbkit.questions.concurrent_jobs.page",
    "inference": "nbkit.questions.inference.evidence",
    "input_pipeline": "nbkit.questions.input_pipeline.evidence",
    "precision": "nbkit.questions.precision.page",
    "scaling": "nbkit.questions.scaling.page",
    "storage": "nbkit.questions.storage.page",
    "time_to_accuracy": "nbkit.questions.time_to_accuracy.page",
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
    module = _REPORTS.get(study.kind or "", "nbkit.questions.any_arms")
    return importlib.import_module(module).report(study)


def headline_so_far(study: StoredStudy) -> str:
    """Return the answer and first table of what has finished."""
    return importlib.import_module("nbkit.questions.study_report").headline(study)


def repeats_needed(study: StoredStudy) -> str:
    """Return how many repeats the study is estimated to need, in words."""
    return importlib.import_module("nbkit.reports.arms").arms_of(study).needed_sentence
