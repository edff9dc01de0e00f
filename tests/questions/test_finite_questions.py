"""A question whose trainings were ended where they stopped being finite is answered."""

from __future__ import annotations

import importlib

import pytest

import nbkit
from tests.questions.conftest import LOST

BASE = "fp32, channels_last"
ANSWERS = ("table", "answer_table", "layout", "published_layouts", "bounds")


@pytest.mark.parametrize(
    ("question", "lost", "names"),
    [
        (
            "time_to_accuracy",
            ["sgd"],
            ("table", "seeds", "settings", "projected", "published"),
        ),
        ("precision", [BASE, f"{BASE} again"], ANSWERS),
    ],
)
def test_report_baseline_that_is_not_finite(golden, lose, question, lost, names):
    study = golden(f"{question}/gpu")
    for arm in lost:
        lose(study.runs_by_arm()[arm])
    module = importlib.import_module(f"nbkit.questions.{question}")

    found = module.result(study)

    for name in names:
        said = getattr(found, name).to_text()
        assert f"every run of {lost[0]} diverged ({LOST})" in said
    assert nbkit.report(study).report.answer.startswith(f"Diverged: {lost[0]}")
