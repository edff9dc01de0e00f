"""What a rank of a function prepares before it calls it."""

from __future__ import annotations

import linecache

import pytest
import torch

from nbkit.config import ExperimentConfig
from nbkit.store.metrics import read_json_lines
from nbkit.worker.function import show_sources
from nbkit.worker.rank_context import Context

CONFIG = ExperimentConfig(task="function", device="cpu")


class Untouched:
    def __repr__(self):
        pytest.fail("it was printed")


class Scalar:
    def item(self):
        pytest.fail("it was asked for its value")


@pytest.mark.parametrize(
    ("returned", "recorded"),
    [
        (0.25, {"returned": 0.25}),
        (
            {"a": 0.5, "b": torch.tensor(2), "large": 10**5000, "text": "0.5"}
            | {"list": [0.5], "object": Untouched()},
            {"a": 0.5, "b": 2, "large": None},
        ),
        (dict.fromkeys(range(2000), 1), {str(name): 1 for name in range(1000)}),
    ],
    ids=["a number", "anything", "many"],
)
def test_record_returned_of_a_function(new_run, returned, recorded):
    rank = new_run()
    context = Context(rank, CONFIG, None)

    context.record_returned(returned)
    context.close()

    [line] = read_json_lines(rank.paths.metrics)
    assert line["values"] == recorded


def test_record_returned_on_rank_0_alone(new_run):
    Context(new_run(rank=1), CONFIG, None).record_returned(Scalar())


def test_lines_of_a_traceback_are_those_that_python_counts(new_run, monkeypatch):
    monkeypatch.setattr(linecache, "cache", {})
    rank = new_run()
    kept = rank.paths.source / "cells" / "In_1.py"
    kept.parent.mkdir(parents=True)
    text = "first = 1\n\f\nthird = 'a\x1eb\u2028c'\r\n1 / 0\n"
    kept.write_bytes(text.encode())
    name = "<cell>"
    entry = {"sources": {name: {"shown_as": "In[1]", "file": "cells/In_1.py"}}}

    show_sources(rank, entry)

    code = compile(text, name, "exec")
    *_, line = (line for _, _, line in code.co_lines() if line)
    assert linecache.getline(name, line) == "1 / 0\n"
