"""What the source of nbkit imports and calls.

What it imports is declared: another package may cease to bring it along. Code that
comes from a folder is executed by those alone who need leave for it. That nobody
imports what loads pickles but the gate and the ranks, a contract in pyproject.toml
says.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOADERS = {"dill", "joblib", "marshal", "pickle", "runpy", "shelve"}

# Not installed where the tests run, or the same module of several packages: these.
OTHERWISE = {
    "torchao": {"torchao"},
    "nvidia.dali": {"nvidia-dali-cuda120", "nvidia-dali-cuda130"},
    "nvidia.nvimgcodec": {"nvidia-nvimgcodec-cu12", "nvidia-nvimgcodec-cu13"},
}

# Into whose insides nbkit reaches: the next major version may have others, and before
# 1.0 the next minor one.
NEXT = {
    "altair": "6",
    "cykooz-resizer": "5",
    "ipykernel": "8",
    "jupyter-server": "3",
    "jupyterlab": "5",
    "nvidia-dali-cuda120": "3",
    "nvidia-dali-cuda130": "3",
    "nvidia-nvimgcodec-cu12": "0.10",
    "nvidia-nvimgcodec-cu13": "0.10",
    "papermill": "3",
    "pydantic": "3",
}


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


def imported(node: ast.Call | ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield the packages that a statement imports."""
    if isinstance(node, ast.Import):
        yield from (package(each.name) for each in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield from (package(f"{node.module}.{each.name}") for each in node.names)


def package(module: str) -> str:
    """Return the package of a module, or what it is called in nvidia's."""
    top, *inner = module.split(".")
    return ".".join([top, *inner[:1]]) if top == "nvidia" else top


def requirements() -> Iterator[Requirement]:
    """Yield what nbkit needs, and each of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    yield from map(Requirement, itertools.chain(project["dependencies"], *extras))


def canonical(name: str) -> str:
    """Return a distribution's name as the package index compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_package_that_is_imported_is_declared():
    declared = {canonical(one.name) for one in requirements()}
    brought_by = packages_distributions()
    names = {name for _, node in _nodes() for name in imported(node)}
    names -= sys.stdlib_module_names

    lacking = {
        name
        for name in names - {"nbkit", *OTHERWISE}
        if declared.isdisjoint(map(canonical, brought_by.get(name, ())))
    }

    assert lacking == set()
    assert OTHERWISE.keys() <= names
    assert set().union(*OTHERWISE.values()) <= declared


def test_packages_into_which_nbkit_reaches_are_bounded_by_their_next_major_version():
    bounds = {
        canonical(one.name): bound
        for one in requirements()
        for bound in one.specifier
        if bound.operator != ">="
    }

    # PyTorch is the user's choice.
    assert bounds.keys().isdisjoint({"torch", "torchvision"})
    assert {name: str(bound) for name, bound in bounds.items()} == {
        name: f"<{version}" for name, version in NEXT.items()
    }


def test_every_package_that_is_declared_has_a_lower_bound():
    """`make test-lowest` would take the first version that there ever was."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    lists = [project["project"]["dependencies"], *map(extras.get, ("train", "dali"))]
    lists.append(project["dependency-groups"]["test"])
    unbounded = [
        line
        for line in itertools.chain(*lists)
        if not re.search(r">=|~=|==", str(Requirement(line).specifier))
    ]

    # pydantic asks for one version of it.
    assert unbounded == ["pydantic-core"]
