"""What a kind of study does before each start and reports, by the kind's name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from nbkit.study.report import Report
from nbkit.study.stored_study import StoredStudy

__all__ = ["before_start", "report_of_its_kind"]

_BEFORE = {"storage": "nbkit.study.storage_data"}
"""By kind, the module whose ``before_start(plan, data)`` is called. Names, not what an
imported file asks for."""

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
    """Do what has to be done before a start; return tags for its record.

    Parameters
    ----------
    kind, plan
        The study's.
    arm
        Fields of the configuration that is started next.
    """
    module = _BEFORE.get(kind or "")
    # On another machine nothing can be done, and its page cache is unknown.
    if module is None or arm.get("engine", "local") != "local":
        return {}
    return importlib.import_module(module).before_start(plan, arm["data"])


def report_of_its_kind(study: StoredStudy) -> Report:
    """Return a report as the module of the study's kind makes it, without its lead.

    Raises
    ------
    NotEnoughDataError
        If no run has finished of what it compares with, or a run measured nothing.
    """
    module = _REPORTS.get(study.kind or "", "nbkit.study.report_arms")
    made: Report = importlib.import_module(module).report(study)
    return made
