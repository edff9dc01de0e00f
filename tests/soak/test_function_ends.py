"""How functions stop, go on and draw again, and what ends a rank that connects."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import nbkit
from nbkit.errors import RunFailedError
from nbkit.store.record import RunState, read_json
from tests.launch.conftest import plugins, store
from tests.launch.test_functions import launch, script
from tests.notebooks.kernel import running_kernel
from tests.waiting import wait_until

__all__ = ["plugins", "script", "store"]


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


def test_notebook_launcher_failing_process():
    def fail():
        message = f"rank {nbkit.context().rank} is out"
        if nbkit.context().rank == 1:
            raise ValueError(message)
        threading.Event().wait()

    with pytest.raises(RunFailedError, match="on rank 1: ValueError: rank 1 is out"):
        nbkit.notebook_launcher(fail, num_processes=2)


def test_launch_script_by_torchrun(script, whole_torch):
    run = launch(script, args=["--rate", 0.5]).wait()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    line = ["bash", "-c", run.record["launch"]["torchrun"]]
    subprocess.run(line, env={**os.environ, "PATH": path}, check=True)
    copy = nbkit.attach(f"{run.run_id}-torchrun")
    assert copy.state is RunState.FINISHED
    assert copy.metrics("log")[0]["values"] == {"rate": 0.5}
