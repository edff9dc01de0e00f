"""A finding: the one form of what audits, diagnoses, reports and `nbkit doctor` say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning", "note", "ok"]
"""Most severe first. ``error``: impossible, or required and not working; ``warning``:
misleading, costs time that a change would recover, or affects one purpose only;
``note``: a fact; ``ok``: works.
"""


@dataclass(frozen=True)
class Finding:
    """What one check found; its fields are the keys of its JSON."""

    subject: str
    """What was looked at: a run, a study, a publication, or a part of the machine."""
    severity: Severity
    evidence: str
    """What is there, with numbers and units; a sentence or less."""
    action: str = ""
    """What to do about it; empty where there is nothing to do."""
    code: str = ""
    """Short, stable name; empty for `nbkit doctor`, whose subjects name its checks."""
