"""How functions stop, go on, fail and leave."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path

import nbkit
from nbkit.store.record import RunState, read_json
from tests.launch.test_functions import launch
from tests.notebooks.kernel import running_kernel
from tests.waiting import wait_until

README = (Path(__file__).parents[2] / "nbkit/launch/README.md").read_text()


def test_readme_function_stop_and_resume():
    (example,) = [part for part in README.split("```python\n") if "def train" in part]
    cell = "import nbkit, torch\n" + example.partition("\n\n\nrun =")[0]
    start = (
        "run = nbkit.launch(train, args=(100_000,), gpus=2, device='cpu', "
        "oversubscribe=True)"
    )
    with running_kernel() as kernel:
        kernel.execute(cell)
        run = nbkit.attach(kernel.execute(start, "run.run_id"))
        # By its second step it has asked once.
        wait_until(lambda: len(run.metrics("log")) >= 2, "two lines")
        run.stop()
        before = run.metrics("log")[-1]["step"]
        stopped = run.cause
        kernel.execute("run.resume()")
        wait_until(lambda: run.metrics("log")[-1]["step"] > before, "more lines")
        run.stop()

    assert stopped["kind"] == "stopped"
    assert stopped["forced"] is False
    assert run.state is RunState.STOPPED
    steps = [line["step"] for line in run.metrics("log")]
    assert steps == list(range(len(steps)))


def test_resume_log_lines_without_step(tmp_path, monkeypatch):
    def train():
        here = nbkit.context()
        state = here.load_checkpoint() or {"done": 0}
        for done in range(state["done"], 4):
            nbkit.log({"done": done})
            if here.attempt == 0 and done == 1:
                here.save_checkpoint({"done": 2}, 2)
                os.abort()
        return Path.cwd().name

    monkeypatch.chdir(tmp_path)
    run = launch(train).wait(raise_on_failure=False)
    assert run.cause["signal"] == "SIGABRT"
    monkeypatch.chdir("/")

    run.resume().wait()

    assert [line["step"] for line in run.metrics("log")] == [0, 1, 2, 3]
    assert run.returns == [tmp_path.name]


def test_resume_after_module_was_edited(tmp_path, monkeypatch):
    module = tmp_path / "own_module.py"
    module.write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    imported = importlib.import_module("own_module")
    # It goes with this test: where it differs from its file, each launch warns.
    sys.modules.pop("own_module")
    monkeypatch.setitem(sys.modules, "own_module", imported)

    def work():
        import own_module  # pyright: ignore[reportMissingImports]

        here = nbkit.context()
        if here.attempt == 0:
            here.save_checkpoint({}, 1)
            os.abort()
        return own_module.VALUE

    run = launch(work).wait(raise_on_failure=False)
    assert "was edited" not in run.logs(0)
    module.write_text("VALUE = 22\n")

    assert run.resume().wait().returns == [22]
    assert f"{module} was edited after the launch" in run.logs(0)


def test_rank_that_exits_early():
    def train():
        if nbkit.context().rank == 1:
            os._exit(0)

    run = launch(train, gpus=2).wait(raise_on_failure=False)

    assert run.state is RunState.FAILED
    assert run.cause["rank"] == 1
    assert "exited early with code 0" in run.cause["message"]


def test_resume_function_with_sigterm_handler():
    def train():
        import signal
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


def draw_in_loading_processes(epochs, stops_after):
    """Return what each epoch drew, in its loading processes and in the rank."""
    import random

    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Augmented(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            drawn = np.random.normal(), random.random(), torch.rand(()).item()
            return torch.tensor([index, *drawn], dtype=torch.float64)

    here = nbkit.context()
    random.seed(7)
    np.random.seed(7)
    torch.manual_seed(7)
    weight = torch.zeros((), dtype=torch.float64)
    state = here.load_checkpoint()
    first = 0 if state is None else state["epoch"]
    drawn = [] if state is None else state["drawn"]
    if state is not None:
        weight = state["weight"]
    loader = DataLoader(Augmented(), batch_size=2, shuffle=True, num_workers=2)
    for epoch in range(first, epochs):
        for batch in loader:
            weight += batch.sum() * np.random.random()
            drawn.append([*batch.flatten().tolist(), random.random(), weight.item()])
        state = {"epoch": epoch + 1, "drawn": drawn, "weight": weight}
        here.save_checkpoint(state, epoch + 1)
        if first == 0 and epoch + 1 == stops_after:
            raise RuntimeError
    return drawn


def test_restart_random_draws_bit_equal():
    whole = launch(draw_in_loading_processes, args=(3, None)).wait()
    run = launch(draw_in_loading_processes, args=(3, 1), max_restarts=1).wait()

    assert len(run.record["attempts"]) == 2
    assert run.returns == whole.returns
    (drawn,) = run.returns
    assert len(drawn) == 12
    values = [value for line in drawn for value in line[1:]]
    assert len(set(values)) > 80  # no epoch and no process draws what another drew


def raises_on_rank_0():
    if nbkit.context().rank == 0:
        raise ValueError


def test_failed_rank_ends_connecting_rank(tmp_path):
    run = launch(raises_on_rank_0, gpus=2)
    rank_1 = run.paths.rank(0, 1).process
    late = wait_until(lambda: read_json(rank_1), "rank 1", 60)["pid"]
    os.kill(late, signal.SIGSTOP)
    ends = [event for event in run.events if event["event"] == "rank_ended"]
    assert ends == []
    try:
        wait_until(lambda: run.paths.rank(0, 0).error.exists(), "the failure", 60)
    finally:
        os.kill(late, signal.SIGCONT)
    run.wait(raise_on_failure=False)

    assert (run.cause["rank"], run.cause["kind"]) == (0, "exception")
    (attempt,) = run.record["attempts"]
    assert attempt["ranks"][1]["signal"] == "SIGTERM"
