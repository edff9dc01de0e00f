"""What may lie in the repository."""

from __future__ import annotations

import ast
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]

CODE = {".py", ".ts", ".tsx", ".js", ".css", ".sh"}

# Joined, so that this file does not hold what it forbids.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("download", "pytorch", "org"),
        ("registry", "npmjs", "org"),
        ("registry", "yarnpkg", "com"),
        ("conda", "anaconda", "org"),
        ("repo", "anaconda", "com"),
        ("docker", "io"),
        ("ghcr", "io"),
        ("quay", "io"),
        ("nvcr", "io"),
    )
]


def files() -> list[Path]:
    """Return what is tracked, or would be."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    paths = [ROOT / name for name in sorted(set(listed.split("\0"))) if name]
    return [path for path in paths if path.is_file()]


def lines() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of every line of every text file."""
    for path in files():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            yield f"{path.relative_to(ROOT)}:{number}", line


@pytest.fixture(scope="module")
def notebooks() -> dict[str, nbformat.NotebookNode]:
    found = {
        path.name: nbformat.read(path, as_version=4)
        for path in files()
        if path.suffix == ".ipynb"
    }
    assert found
    return found


def test_no_package_registry_is_named():
    found = [
        (place, host)
        for place, line in lines()
        for host in REGISTRY_HOSTS
        if host in line
    ]
    assert found == []


def test_no_path_of_this_machine_is_named():
    shared = {"/", tempfile.gettempdir()}
    own = [f"{path}/" for path in {str(ROOT.parent), str(Path.home())} - shared]

    found = [(place, path) for place, line in lines() for path in own if path in line]
    assert found == []


def test_no_code_file_has_more_than_400_lines():
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in files()
        if path.suffix in CODE
    }
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_notebooks_carry_no_outputs(notebooks: dict[str, nbformat.NotebookNode]):
    carrying = [
        f"{name}, cell {number}"
        for name, notebook in notebooks.items()
        for number, cell in enumerate(notebook.cells)
        if cell.cell_type == "code" and (cell.outputs or cell.execution_count)
    ]
    carrying += [
        n for n, notebook in notebooks.items() if "widgets" in notebook.metadata
    ]
    assert carrying == [], "clear with: jupyter nbconvert --clear-output --inplace"


def test_notebooks_have_one_parameters_cell(
    notebooks: dict[str, nbformat.NotebookNode],
):
    tagged = {
        name: sum(
            "parameters" in cell.metadata.get("tags", ()) for cell in notebook.cells
        )
        for name, notebook in notebooks.items()
    }
    assert tagged == dict.fromkeys(notebooks, 1)


def test_functions_in_notebooks_have_at_most_ten_lines(
    notebooks: dict[str, nbformat.NotebookNode],
):
    long = [
        f"{name}: {node.name}"
        for name, notebook in notebooks.items()
        for cell in notebook.cells
        if cell.cell_type == "code"
        for node in ast.walk(ast.parse(cell.source))
        if isinstance(node, ast.FunctionDef)
        and (node.end_lineno or 0) - node.lineno + 1 > 10
    ]
    assert long == []
