"""A question whose trainings were ended where they stopped being finite is answered."""

from __future__ import annotations

import pytest

import nbkit
from tests.questions.conftest import LOST

BASE = "fp32, channels_last"


@pytest.mark.parametrize(
    ("case", "lost"),
    [
        ("time_to_accuracy/gpu", ["sgd"]),
        ("precision/gpu", [BASE, f"{BASE} again"]),
        ("precision/no_control", [BASE]),
    ],
)
def test_report_baseline_that_is_not_finite(golden, lose, case, lost):
    study = golden(case)
    for arm in lost:
        lose(study.runs_by_arm()[arm])

    report = nbkit.report(study).report

    assert report.answer.startswith(f"Diverged: {lost[0]} ({LOST}")
    assert report.title.endswith(": nothing to compare")
