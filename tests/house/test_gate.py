"""Code that comes from a folder is executed by those alone who need leave for it.

That nobody imports what loads pickles but the gate and the ranks, a contract in
pyproject.toml says.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOADERS = {"dill", "joblib", "marshal", "pickle", "runpy", "shelve"}


@functools.cache
def _nodes() -> list[tuple[str, ast.Call | ast.Import | ast.ImportFrom]]:
    return [
        (path.relative_to(ROOT / "nbkit").as_posix(), node)
        for path in sorted((ROOT / "nbkit").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call | ast.Import | ast.ImportFrom)
    ]


@functools.cache
def _calls() -> list[tuple[str, str, ast.Call]]:
    """Return files, what they call, such as ``engine.submit``, and the call."""
    return [
        (name, ast.unparse(node.func), node)
        for name, node in _nodes()
        if isinstance(node, ast.Call)
    ]


@pytest.mark.parametrize(
    ("called", "by"),
    [
        ("Permit", {"launch/code/trust.py"}),
        # Of a run that the caller has made; all others are judged.
        ("permit_new", {"launch/start.py"}),
        ("engine.submit", {"launch/submit.py"}),
        # Some formats are programs, and Pillow would run them.
        ("Image.open", {"datasets/rgb.py"}),
        ("exec", {"worker/function.py"}),
        ("eval", set()),
        ("cloudpickle.load", set()),
        ("cloudpickle.loads", set()),
    ],
)
def test_only_the_gate_and_what_it_lets_pass_executes(called: str, by: set[str]):
    assert {name for name, what, _ in _calls() if what == called} == by


def test_what_reads_programs_as_data_is_imported_in_one_file():
    found = set()
    for name, node in _nodes():
        if isinstance(node, ast.Import):
            modules = {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules = {node.module or ""}
        else:
            continue
        found |= {(name, one) for one in modules if one.partition(".")[0] in LOADERS}

    assert found == {("store/pickles.py", "pickle")}


def test_torch_loads_weights_only():
    lax = {
        name
        for name, what, call in _calls()
        if what.endswith(("torch.load", "['torch'].load"))
        and "weights_only=True" not in ast.unparse(call)
    }

    assert lax == set()
