"""What the notebooks cover: one truth, equal to their folder."""

from __future__ import annotations

import re
import subprocess
import sys

import nbformat
import pytest

import nbkit
from nbkit.questions.question import notebooks_of_questions
from nbkit.questions.sources import (
    REPORTS,
    main,
    sources_table,
    state,
)
from nbkit.studies.coercion import coerce
from nbkit.studies.notebooks import notebooks, parameters_of
from nbkit.studies.parameters import _declared

QUESTIONS = {one.name: one for one in notebooks_of_questions()}
FIELDS = {"model": "tiny", "device": "cpu", "gpus": 1, "image_size": 32}
FIELDS |= {"batch_size_per_gpu": 2, "steps": 4, "warmup_steps": 1, "tensorboard": False}


def declared(notebook):
    """Return kind and default of every parameter of a notebook."""
    return _declared(["\n".join(parameters_of(nbkit.notebook(notebook)))])[1]


def test_every_notebook_has_a_question_and_every_question_a_notebook():
    assert set(QUESTIONS) == set(notebooks())


@pytest.mark.parametrize("notebook", QUESTIONS)
def test_every_command_has_parameters_that_the_notebook_declares(notebook):
    one = QUESTIONS[notebook]
    kinds = declared(notebook)

    assert set(one.parameters) <= set(kinds)
    for name, value in one.parameters.items():
        assert coerce(name, value, kinds[name][0]) == value
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


def test_a_store_without_studies_says_that_nothing_was_run(store):
    rows = {row[0]: row for row in sources_table().rows}

    assert list(rows) == list(QUESTIONS)
    assert rows["precision"][4] == "not run yet"
    assert rows["machines"][4] == "not run yet"
    assert "tour" in rows["interactive"][4]


def test_the_newest_finished_study_of_a_kind_says_what_became_of_it(store):
    arms = {"a": nbkit.ExperimentConfig(**FIELDS)}
    study = nbkit.Study.create("old", arms, kind="storage")
    assert state("storage") == f"no run finished: {study.study_id}"

    nbkit.Study.create("new", arms, kind="precision", repeats=1).run(progress=False)

    said = state("precision")
    assert re.match(r"finished 20\d\d-\d\d-\d\dT\d\d:\d\dZ on .+ \(CPU smoke", said)
    assert said.endswith("1 of 1 runs")
    # A start that came to nothing later does not hide it.
    nbkit.Study.create("aborted", arms, kind="precision", repeats=1)
    assert state("precision") == said


def test_it_is_a_command(store):
    done = subprocess.run(
        [sys.executable, "-m", "nbkit.questions.sources"],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    for notebook in QUESTIONS:
        assert f"papermill notebooks/{notebook}.ipynb" in done.stdout
    assert main(["all"]) == 2
