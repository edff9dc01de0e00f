"""What the notebooks cover: one truth, equal to their folder."""

from __future__ import annotations

import subprocess
import sys

import nbformat
import pytest

import nbkit
from nbkit.questions.question import notebooks_of_questions
from nbkit.questions.sources import REPORTS, main
from nbkit.studies.notebooks import notebooks, parameters_of
from nbkit.studies.parameters import check_parameters

QUESTIONS = {one.name: one for one in notebooks_of_questions()}


def test_every_notebook_has_a_question_and_every_question_a_notebook():
    assert set(QUESTIONS) == set(notebooks())


@pytest.mark.parametrize("notebook", QUESTIONS)
def test_every_command_has_parameters_that_the_notebook_declares(notebook):
    one = QUESTIONS[notebook]
    cell = "\n".join(parameters_of(nbkit.notebook(notebook)))

    checked = check_parameters([cell], one.parameters)

    assert {name: checked[name] for name in one.parameters} == one.parameters
    assert one.command.startswith(f"papermill notebooks/{notebook}.ipynb out.ipynb")
    assert set(one.reports) <= set(REPORTS)


@pytest.mark.parametrize("notebook", [one for one in QUESTIONS if one != "interactive"])
def test_a_questions_notebook_has_eight_cells_and_twelve_parameters(notebook):
    cells = nbformat.read(nbkit.notebook(notebook), as_version=4).cells
    [parameters] = [one for one in cells if one.metadata.get("tags")]

    assert len(cells) <= 8
    assert len(parameters.source.splitlines()) <= 12
    assert not any("Study.create" in one.source for one in cells)


def test_each_report_has_a_question():
    asked = {name for one in QUESTIONS.values() for name in one.reports}
    assert asked == set(REPORTS)


def test_it_is_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "nbkit.questions.sources"],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    for notebook in QUESTIONS:
        assert f"papermill notebooks/{notebook}.ipynb" in done.stdout
    assert main(["all"]) == 2
