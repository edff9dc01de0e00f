"""What becomes of a run when its notebook ends, unless the launch says."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient

import nbkit
from nbkit.launch.submit import chosen_owner_exit
from tests.notebooks.kernel import running_kernel

ASK = "from nbkit.launch.submit import chosen_owner_exit\nchosen_owner_exit(None)"


def test_owner_exit_in_a_notebook_that_a_program_executes():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(ASK)])

    NotebookClient(notebook, timeout=120).execute()

    assert notebook.cells[0].outputs[0].data["text/plain"] == "'stop'"


def test_owner_exit_in_a_page_and_in_a_script():
    with running_kernel() as kernel:
        kernel.execute(ASK.splitlines()[0])
        assert kernel.execute("", "chosen_owner_exit(None)") == "keep"
    assert chosen_owner_exit(None) == "keep"


@pytest.mark.parametrize("choice", ["keep", "stop"])
def test_owner_exit_as_chosen(choice):
    assert chosen_owner_exit(choice) == choice
    with pytest.raises(nbkit.errors.ConfigError, match="neither 'keep' nor 'stop'"):
        chosen_owner_exit(choice.upper())
