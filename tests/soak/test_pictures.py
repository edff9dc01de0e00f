"""Notebooks of short cells, in which a run ends between two of them."""

from __future__ import annotations

import json

import nbformat
import pytest
from nbclient import NotebookClient

from tests.launch.conftest import plugins, store

__all__ = ["plugins", "store"]

NOTEBOOKS = 20
CELLS = 200

LAUNCH = """
import time, nbkit
def work():
    time.sleep(1)
run = nbkit.launch(work, device="cpu", oversubscribe=True)
run
"""


@pytest.mark.timeout(3600)
def test_a_saved_notebook_shows_the_end_of_a_run_that_ended_between_two_cells():
    stale = []
    for number in range(NOTEBOOKS):
        notebook = nbformat.v4.new_notebook()
        # Some runs end while a cell works, most between two of the hundreds.
        pause = "time.sleep(0.02)"
        cells = [LAUNCH, *[pause] * CELLS, "print(run.state)", "None"]
        notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
        NotebookClient(notebook, timeout=240, kernel_name="python3").execute()

        launched, *_, state, _ = (cell.outputs for cell in notebook.cells)
        assert state[0].text == "finished\n", "the run has outlived the cells"
        (picture,) = launched
        if "finished" not in picture.data["text/plain"]:
            stale.append((number, json.dumps(picture.data)))
    assert stale == []
