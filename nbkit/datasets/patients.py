"""Splits by patient: no patient has images on both sides.

A model that has seen other images of a patient knows them again, so that an evaluation
with them is too good.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

EVALUATION_SHARE = 0.2
"""Of the patients."""

SPLIT_RULE = "nbkit/patients/1"
"""Name of the way in which patients are drawn; another one for other patients."""

BY_PATIENT = "about 20% of the patients, selected by a hash of their id"
"""What to say of a split by patient."""


def evaluation_patients(patients: Iterable[str]) -> set[str]:
    """Return the patients whose images are for evaluation, always the same ones."""
    # They are those that come first by a hash of their id. Of two or more patients at
    # least one is taken, and one is left.
    ordered = sorted(
        set(patients),
        key=lambda name: hashlib.sha256(f"{SPLIT_RULE}/{name}".encode()).digest(),
    )
    count = max(1, round(EVALUATION_SHARE * len(ordered))) if len(ordered) > 1 else 0
    return set(ordered[:count])


def split_by_patient(patients: Mapping[str, str]) -> dict[str, str]:
    """Return ``train`` or ``evaluation`` for every image, by its patient."""
    chosen = evaluation_patients(patients.values())
    return {
        name: "evaluation" if patient in chosen else "train"
        for name, patient in patients.items()
    }
