"""How functions stop, go on, fail and leave."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path

import nbkit
from nbkit.store.record import RunState
from tests.launch.test_functions import launch
from tests.waiting import wait_until


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
    assert "was edited" not in run.logs(0)
    monkeypatch.chdir("/")
    module.write_text("VALUE = 22\n")

    run.resume().wait()

    assert [line["step"] for line in run.metrics("log")] == [0, 1, 2, 3]
    assert run.returns == [(tmp_path.name, 22)]
    assert f"{module} was edited after the launch" in run.logs(0)


def test_rank_that_exits_early():
    def train():
        if nbkit.context().rank == 1:
            os._exit(0)

    run = launch(train, gpus=2).wait(raise_on_failure=False)

    assert run.state is RunState.FAILED
    assert run.cause["rank"] == 1
    assert "exited early with exit code 0" in run.cause["message"]


def test_resume_function_with_sigterm_handler():
    def train():
        import time

        def leave(number, frame):
            raise TimeoutError

        here = nbkit.context()
        saved = here.load_checkpoint()
        if saved is not None:
            return saved["step"]
        signal.signal(signal.SIGTERM, leave)
        try:
            # Not a line of nbkit.log(): imports inside it may swallow the exception.
            (here.run_folder / "waits").touch()
            while True:
                time.sleep(0.1)
        except TimeoutError:
            here.save_checkpoint({"step": 3}, 3)
        return "left"

    run = launch(train)
    wait_until((run.paths.root / "waits").exists, "a function that waits")
    run.stop()
    stopped = run.state
    run.resume()
    run.wait()

    assert stopped is RunState.STOPPED
    assert run.returns == [3]
