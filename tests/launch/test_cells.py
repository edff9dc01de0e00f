"""A cell is known by what IPython offers publicly, or without it."""

from __future__ import annotations

import linecache
from types import SimpleNamespace

import IPython
import pytest
from ipykernel.compiler import XCachingCompiler
from IPython.core.compilerop import CachingCompiler

from nbkit.launch.code import entry

CELL = "def train():\n    return 1\n"


@pytest.fixture
def cell(monkeypatch):
    """Compile a cell as the kernel of a notebook does; return the name of its file."""
    monkeypatch.setattr(linecache, "cache", dict(linecache.cache))
    compiler = XCachingCompiler()
    shell = SimpleNamespace(compile=compiler)
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    return lambda: compiler.cache(CELL, 3)


def shown_as(file):
    """Return what the entry of the cell's function calls the cell."""
    defined = {"__name__": "__main__"}
    exec(compile(CELL, file, "exec"), defined)
    made = entry.function_entry(defined["train"])
    source = made.description["sources"][file]
    assert made.sources[source["file"]].decode() == CELL
    return source["shown_as"]


@pytest.mark.parametrize("name", [None, "named/by/a/variable"])
def test_cells_by_any_file_name(cell, monkeypatch, name):
    if name is not None:
        monkeypatch.setenv("IPYKERNEL_CELL_NAME", name)
    file = cell()

    assert name in (None, file)
    assert shown_as(file) == "Cell In[3]"


def test_sources_cell_without_ipython_name(cell, monkeypatch):
    monkeypatch.delattr(CachingCompiler, "format_code_name")
    file = cell()

    assert shown_as(file) == "a cell"
