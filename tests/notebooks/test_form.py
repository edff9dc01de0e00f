"""Every canonical notebook has the form that its readers and papermill rely on."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import nbformat
import papermill
import pytest

import nbkit
from nbkit.errors import ParameterError
from nbkit.studies.parameters import check_parameters
from tests.notebooks.executing import as_papermill_gives_them

FOLDER = nbkit.notebook("scaling").parent
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def notebook(path: Path):
    content = nbformat.read(path, as_version=4)
    nbformat.validate(content)
    return content


@pytest.fixture
def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_it_has_no_outputs_and_the_ordinary_kernel(notebook, code):
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert notebook.metadata.kernelspec.name == "python3"
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}


def test_headings_name_a_thing_and_prose_is_above_every_cell(notebook):
    assert notebook.cells[0].source.startswith("# ")
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    headings = re.findall(r"^#+ .+$", "\n".join(texts), re.M)
    assert not [one for one in headings if one.endswith("?")]
    kinds = [cell.cell_type for cell in notebook.cells]
    assert "code code" not in " ".join(kinds)


def test_one_cell_declares_the_parameters_each_with_its_meaning(path, code):
    [cell] = [c for c in code if "parameters" in c.metadata.get("tags", [])]

    names = set(check_parameters([cell.source], {}))
    declared = papermill.inspect_notebook(str(path))
    assert set(declared) == names
    assert all(parameter["help"] for parameter in declared.values())


def test_bad_parameters_are_all_named_before_anything_else_is_done(path, code):
    declared = papermill.inspect_notebook(str(path)).values()
    [wrong, *_] = (one["name"] for one in declared)
    numbers = [one["name"] for one in declared if one["inferred_type_name"] == "int"]
    truths = [one["name"] for one in declared if one["inferred_type_name"] == "bool"]
    bad = {f"{wrong}z": "1", **dict.fromkeys([*numbers, *truths], "perhaps")}

    with pytest.raises(ParameterError) as caught:
        as_papermill_gives_them(path.stem, **bad)

    said = str(caught.value)
    assert f"Did you mean {wrong!r}?" in said
    for name in numbers:
        assert f"{name}='perhaps' is not a whole number" in said
    for name in truths:
        assert f"{name}='perhaps' is not a boolean" in said
    # Only imports come before the check.
    first, *_ = (cell for cell in code if "tags" not in cell.metadata)
    statements = ast.parse(first.source).body
    [checked, *_] = (
        one for one in statements if not isinstance(one, ast.Import | ast.ImportFrom)
    )
    assert ast.unparse(checked).startswith("p = nbkit.params(")


def test_no_cell_is_long_and_no_function_has_more_than_ten_lines(code):
    for cell in code:
        if "parameters" in cell.metadata.get("tags", []):
            continue
        assert len(cell.source.splitlines()) <= 15
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno is not None
                assert node.end_lineno - node.lineno < 10
