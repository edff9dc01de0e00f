"""What is seen first of a report, and of a table that is shown by itself."""

from __future__ import annotations

import importlib
import shutil
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


@pytest.mark.parametrize("question", QUESTIONS)
def test_headline_table_lead_missing_arm(question, store, tmp_path):
    study = imported(f"{question}/gpu", tmp_path)
    module = importlib.import_module(f"nbkit.questions.{question}")
    last = [*study.arms][-1]
    for run in study.runs_by_arm()[last]:
        shutil.rmtree(run.paths.root)

    shown = module.result(study).table._repr_mimebundle_()

    answer = make(study).answer
    assert f"but no run of arm {last}" in answer
    assert shown["text/plain"].startswith(f"{answer}\n\n")
    assert shown["text/html"].startswith("<p><strong>Inconclusive: ")
