"""Reports, notes and preparation of a study, by the name of its kind.

Reports import studies: a study can only reach them by name when it has run. A kind is
an entry point of an installed package, and never what an imported file asks for.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

from nbkit import registry
from nbkit.studies.stored_study import StoredStudy


def before_start(
    kind: str | None, plan: Mapping[str, Any], arm: Mapping[str, Any]
) -> dict[str, str]:
    """Prepare a start of this arm; return tags for its record."""
    # On another machine nothing can be done, and its page cache is unknown.
    if arm.get("engine", "local") != "local":
        return {}
    if kind not in registry.names("questions"):
        return {}
    return registry.resolve("questions", kind).before_start(plan, arm)


def report_of_its_kind(study: StoredStudy) -> Any:
    """Return the report by the study's kind, by its metric, or of any arms."""
    if study.kind in registry.names("questions"):
        return registry.resolve("questions", study.kind).report(study)
    if study.metric is not None:
        return importlib.import_module("nbkit.questions.metric_report").report(study)
    return importlib.import_module("nbkit.questions.any_arms").report(study)


def plan_notes(study: StoredStudy) -> list[str]:
    """Return the notes of a study's plan, derived from its stored values."""
    if study.kind in registry.names("questions"):
        return registry.resolve("questions", study.kind).describe(study)
    return importlib.import_module("nbkit.questions.trial").describe(study.plan)


def headline_so_far(study: StoredStudy) -> str:
    """Return the answer and first table of the finished runs."""
    return importlib.import_module("nbkit.questions.study_report").headline(study)


def answer_so_far(study: StoredStudy) -> str:
    """Return the answer of the finished runs, without their number."""
    answer = importlib.import_module("nbkit.questions.study_report").make(study).answer
    return re.sub(r"^So far, \d+ of \d+ planned runs \w+ finished\.\s*", "", answer)


def settled_arms(study: StoredStudy) -> set[str]:
    """Return the arms whose verdict on images/s is settled."""
    return importlib.import_module("nbkit.reports.arms").settled_arms(study)
