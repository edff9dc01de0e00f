"""What a rank of a function prepares before it calls it."""

from __future__ import annotations

import linecache

from nbkit.worker.function import _show_sources


def test_lines_of_a_traceback_are_those_that_python_counts(new_run, monkeypatch):
    monkeypatch.setattr(linecache, "cache", {})
    rank = new_run()
    kept = rank.paths.source / "cells" / "In_1.py"
    kept.parent.mkdir(parents=True)
    text = "first = 1\n\f\nthird = 'a\x1eb\u2028c'\r\n1 / 0\n"
    kept.write_bytes(text.encode())
    name = "<cell>"
    entry = {"sources": {name: {"shown_as": "In[1]", "file": "cells/In_1.py"}}}

    _show_sources(rank, entry)

    code = compile(text, name, "exec")
    *_, line = (line for _, _, line in code.co_lines() if line)
    assert linecache.getline(name, line) == "1 / 0\n"
