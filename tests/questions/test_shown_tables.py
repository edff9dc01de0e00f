"""A table that a notebook shows by itself begins with what takes the answer back."""

from __future__ import annotations

import importlib
import shutil

import pytest

from nbkit.questions.study_report import make
from tests.golden.reports import imported


@pytest.mark.parametrize(
    "question",
    [
        *("chexnet", "concurrent_jobs", "inference", "input_pipeline", "precision"),
        *("scaling", "storage", "time_to_accuracy"),
    ],
)
def test_a_headline_table_says_first_that_an_arm_has_no_run(question, store, tmp_path):
    study = imported(f"{question}/gpu", tmp_path)
    module = importlib.import_module(f"nbkit.questions.{question}")
    whole = module.result(study).table._repr_mimebundle_()
    last = [*study.arms][-1]
    for run in study.runs_by_arm()[last]:
        shutil.rmtree(run.paths.root)

    shown = module.result(study).table._repr_mimebundle_()

    answer = make(study).answer
    assert f"and none of {last}" in answer
    assert shown["text/plain"].startswith(f"{answer}\n\n")
    assert shown["text/html"].startswith("<p><strong>Inconclusive: ")
    assert "Inconclusive" not in whole["text/plain"]
