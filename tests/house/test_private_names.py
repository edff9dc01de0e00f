"""Tests use nbkit through its public names, so that the others are free to change."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]

# What anywidget asks of a widget's class.
ANYWIDGET = {"_css", "_esm"}


def root(node: ast.AST) -> str | None:
    return root(node.value) if isinstance(node, ast.Attribute) else vars(node).get("id")


def private_names(file: Path) -> set[str]:
    """Return private names of nbkit that are imported, looked up or replaced."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    imported = [
        one
        for node in nodes
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("nbkit.")
        for one in node.names
    ]
    ours = {one.asname or one.name for one in imported} | {"nbkit"}
    used = {one.name for one in imported}
    for node in nodes:
        match node:
            case (
                ast.Attribute(owner, name)
                | ast.Call(args=[owner, ast.Constant(str(name)), *_])
            ) if root(owner) in ours:
                used.add(name)
            case ast.Constant(str(path)) if path.startswith("nbkit."):
                used.add(path.rpartition(".")[2])
    return {one for one in used - ANYWIDGET if one[:1] == "_" != one[-1:]}


def test_tests_use_no_private_name_of_nbkit():
    found = {str(one): private_names(one) for one in TESTS.rglob("*.py")}

    assert {file: names for file, names in found.items() if names} == {}
