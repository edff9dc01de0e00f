"""How functions stop, continue, draw again, fail and leave; scripts by torchrun."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import nbkit
from nbkit.errors import RunError, RunFailedError
from nbkit.store.record import RunState, read_json
from tests.launch.conftest import plugins, store
from tests.launch.test_functions import launch, script
from tests.launch.test_lone_rank import worker
from tests.notebooks.kernel import running_kernel
from tests.waiting import patient, wait_until
from tests.worker.test_trainer_callback import train as train_by_callback

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


def test_launch_function_fails_in_every_attempt():
    def train():
        return 1 / (nbkit.context().rank - 1)

    run = launch(train, gpus=2, max_restarts=1)

    with pytest.raises(RunFailedError, match=r"(?s)on rank 1: ZeroDivision.*in train"):
        run.wait()
    with pytest.raises(RunError, match="has not returned"):
        _ = run.returns
    with pytest.raises(RunError, match="no complete checkpoint"):
        run.resume()
    assert (run.cause["kind"], run.cause["rank"], run.attempt) == ("exception", 1, 1)
    attempts = run.record["attempts"]
    assert [attempt["state"] for attempt in attempts] == ["failed", "failed"]


def launch_another_and_fail(nested):
    run = nbkit.launch(signal.pause, device="cpu", oversubscribe=True)
    nested.write_text(run.run_id)
    raise ValueError


def test_launched_run_outlives_a_failed_one(tmp_path):
    run = launch(launch_another_and_fail, args=(tmp_path / "nested",))
    run.wait(patient(60), raise_on_failure=False)

    nested = nbkit.attach((tmp_path / "nested").read_text())
    try:
        assert run.state is RunState.FAILED
        wait_until(lambda: nested.state is RunState.RUNNING, "the nested run", 60)
    finally:
        nested.stop()


def fail_once(word):
    print(word, nbkit.context().attempt, flush=True)
    if nbkit.context().attempt == 0:
        os.abort()


def test_notebook_launcher_max_restarts(capsys):
    nbkit.notebook_launcher(fail_once, args=("try",), num_processes=1, max_restarts=3)

    shown = capsys.readouterr().out
    assert "try 0\n" in shown
    assert "try 1\n" in shown


def meet_at(port: int) -> tuple[float, int, int]:
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader

    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", str(port)
    dist.init_process_group("gloo")
    batches = list(DataLoader(torch.ones(8), batch_size=2, num_workers=2))
    total = torch.stack(batches).sum()
    dist.all_reduce(total)
    dist.destroy_process_group()
    return float(total), len(batches), len(os.environ["TMPDIR"])


def test_function_own_master_port_and_long_tmpdir(tmp_path):
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    environment = {"TMPDIR": str(folder)}
    run = launch(meet_at, args=(port,), gpus=2, environment=environment).wait(120)

    assert run.returns == [(16.0, 4, len(str(folder)))] * 2


def meets_itself():
    had_torch = "torch" in sys.modules
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    import torch.distributed as dist

    sums = []
    for value in (2.0, 5.0):
        dist.init_process_group("gloo")
        total = torch.tensor(value)
        dist.all_reduce(total)
        dist.destroy_process_group()
        sums.append(total.item())
    return had_torch, torch.get_num_threads(), sums, str(nbkit.context().device)


def test_lone_rank_process_group_twice():
    run = nbkit.launch(meets_itself, device="cpu").wait()

    assert run.returns == [(False, 1, [2.0, 5.0], "cpu")]
    assert worker(run)["torch"].startswith("2.")


def test_trainer_callback_stops_with_a_checkpoint_and_resumes(tmp_path):
    run = nbkit.launch(
        train_by_callback, args=(10**9,), gpus=2, device="cpu", oversubscribe=True
    )
    wait_until(lambda: run.metrics("log"), "a line of the trainer", 120)

    run.stop()

    assert run.state is RunState.STOPPED
    [saved] = (run.paths.root / "trainer").iterdir()
    run.resume()
    step = int(saved.name.rpartition("-")[2])
    wait_until(
        lambda: [line for line in run.metrics("log") if line["attempt"] == 1],
        "a line of the second attempt",
        120,
    )
    run.stop()
    [first, *_] = [line for line in run.metrics("log") if line["attempt"] == 1]
    assert step < first["step"] <= step + 3
