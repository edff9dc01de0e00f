"""What is seen first of a report."""

from __future__ import annotations

import textwrap

import pytest

from nbkit.questions.study_report import make
from nbkit.reports.renderer import first_screen
from tests.golden.reports import imported

QUESTIONS = (
    *("chexnet", "concurrent_jobs", "inference", "input_pipeline", "precision"),
    *("scaling", "storage", "time_to_accuracy"),
)
LINES, COLUMNS = 24, 100


@pytest.mark.parametrize("question", QUESTIONS)
def test_first_screen_lines(question, store, tmp_path):
    report = make(imported(f"{question}/gpu", tmp_path))

    screen = "\n\n".join(first_screen(report.to_dict()))

    lines = [textwrap.wrap(line, COLUMNS) or [""] for line in screen.splitlines()]
    assert sum(map(len, lines)) <= LINES, screen
