"""How functions stop, go on, fail and leave."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import nbkit
from tests.launch.test_functions import launch


def test_resume_after_module_was_edited(tmp_path, monkeypatch):
    module = tmp_path / "own_module.py"
    module.write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    imported = importlib.import_module("own_module")
    # It goes with this test: where it differs from its file, each launch warns.
    sys.modules.pop("own_module")
    monkeypatch.setitem(sys.modules, "own_module", imported)

    def train():
        import own_module  # pyright: ignore[reportMissingImports]

        here = nbkit.context()
        state = here.load_checkpoint() or {"done": 0}
        for done in range(state["done"], 4):
            nbkit.log({"done": done})
            if here.attempt == 0 and done == 1:
                here.save_checkpoint({"done": 2}, 2)
                os.abort()
        return Path.cwd().name, own_module.VALUE

    monkeypatch.chdir(tmp_path)
    run = launch(train).wait(raise_on_failure=False)
    assert run.cause["signal"] == "SIGABRT"
    assert "edited after" not in run.logs(0)
    monkeypatch.chdir("/")
    module.write_text("VALUE = 22\n")

    run.resume().wait()

    assert [line["step"] for line in run.metrics("log")] == [0, 1, 2, 3]
    assert run.returns == [(tmp_path.name, 22)]
    assert f"edited after the launch: {module}" in run.logs(0)
