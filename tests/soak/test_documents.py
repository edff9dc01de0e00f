"""Blocks of code of the long pages run from top to bottom."""

from __future__ import annotations

import subprocess
import sys

import nbformat
import pytest

import nbkit
from nbkit.cli.main import main
from nbkit.server.notebooks import describe_notebooks
from tests.house.documents import blocks, section
from tests.house.test_contributing import PAGE, plugin
from tests.house.test_documents import LONG, images, run_code_of

__all__ = ["images", "plugin"]


@pytest.mark.parametrize("page", sorted(LONG))
def test_the_code_on_a_page_runs_from_top_to_bottom(page, images, monkeypatch):
    run_code_of([page], images, monkeypatch)


def test_a_question_of_a_package_has_plan_report_tile_and_command(plugin, capsys):
    parameters, *cells = blocks(section(PAGE, "### A notebook"))
    made = nbformat.read(nbkit.notebook("scaling"), as_version=4)
    made.cells = [
        nbformat.v4.new_markdown_cell("# Label smoothing\n\nTwo arms."),
        nbformat.v4.new_code_cell(parameters.text, metadata={"tags": ["parameters"]}),
        *(nbformat.v4.new_code_cell(block.text) for block in cells),
    ]
    nbformat.write(made, plugin / "smoothing.ipynb")

    assert main(["notebook", "smoothing"]) == 0
    path = capsys.readouterr().out.strip()
    assert path == str(plugin / "smoothing.ipynb")
    assert main(["notebook", "smoothing", "--parameters"]) == 0
    assert capsys.readouterr().out.strip() == parameters.text.strip()
    [tile] = [one for one in describe_notebooks() if one["name"] == "smoothing"]
    assert (tile["title"], tile["description"]) == ("Label smoothing", "Two arms.")

    done = subprocess.run(
        [
            *(sys.executable, "-m", "papermill", path, "out.ipynb"),
            *("-p", "model", "small_cnn", "-p", "steps", "12", "-p", "repeats", "1"),
        ],
        cwd=plugin,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    (report,) = (plugin / "store").glob("studies/*/report.html")
    assert "smoothed" in report.read_text()
    assert "Does label smoothing cost speed?" in report.read_text()
    *_, plan, answer = nbformat.read(plugin / "out.ipynb", as_version=4).cells
    assert "2 arms, 1 process starts" in plan.outputs[-1]["data"]["text/plain"]
    assert str(report) in answer.outputs[-1]["data"]["text/plain"]
