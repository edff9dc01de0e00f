"""`notebook_launcher` takes the place of accelerate's, and nothing else changes."""

from __future__ import annotations

import pytest

import nbkit
from nbkit.errors import ConfigError
from nbkit.store.record import RunState
from tests.notebooks.kernel import running_kernel

# As a notebook of accelerate has it, but for the first line.
CELL = """
from nbkit import notebook_launcher

import torch
from torch.utils.data import DataLoader, TensorDataset


def training_loop(seed=42, batch_size=16):
    from accelerate import Accelerator
    from accelerate.utils import set_seed

    set_seed(seed)
    accelerator = Accelerator()
    inputs = torch.randn(256, 8)
    data = TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())
    model = torch.nn.Linear(8, 2)
    model, optimizer, train_dataloader, eval_dataloader = accelerator.prepare(
        model,
        torch.optim.SGD(model.parameters(), lr=0.5),
        DataLoader(data, shuffle=True, batch_size=batch_size),
        DataLoader(data, batch_size=batch_size),
    )
    for epoch in range(3):
        for inputs, labels in train_dataloader:
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accurate = num_elems = 0
        for inputs, labels in eval_dataloader:
            predictions, references = accelerator.gather_for_metrics(
                (model(inputs).argmax(dim=-1), labels)
            )
            accurate += (predictions == references).long().sum()
            num_elems += references.shape[0]
        accelerator.print(f"epoch {epoch}: {100 * accurate / num_elems:.1f}")
    here = accelerator.process_index
    print(f"process {here} of {accelerator.num_processes}", flush=True)
    return accelerator.num_processes, num_elems, accelerator.mixed_precision


args = (42, 16)
"""
LAUNCH = (
    "notebook_launcher(training_loop, args, num_processes=2, mixed_precision='bf16')"
)


WAITING_CELL = """
import threading
def wait():
    print("here", flush=True)
    threading.Event().wait()
notebook_launcher(wait, num_processes=1)
"""


def test_notebook_launcher_finishes_then_is_interrupted():
    printed: list[str] = []
    with running_kernel() as kernel:
        kernel.execute(CELL)
        reply = kernel.client.execute_interactive(
            f"run = {LAUNCH}",
            allow_stdin=False,
            timeout=300,
            output_hook=lambda message: printed.append(
                message["content"].get("text", "")
            ),
        )
        assert reply["content"]["status"] == "ok", reply["content"]
        returned = kernel.execute("pass", "run.returns")
        request = kernel.client.execute(WAITING_CELL)
        messages = iter(lambda: kernel.client.get_iopub_msg(timeout=120), None)
        next(m for m in messages if "here" in m["content"].get("text", ""))
        kernel.manager.interrupt_kernel()
        reply = kernel.reply_to(request)

    assert returned == [(2, 256, "bf16")] * 2
    text = "".join(printed)
    lines = [line for line in text.splitlines() if "epoch" in line]
    assert [line.partition(":")[0] for line in lines] == [
        "epoch 0",
        "epoch 1",
        "epoch 2",
    ]
    assert float(lines[-1].partition(":")[2]) > 80
    assert "process 0 of 2" in text
    assert "process 1 of 2" in text
    assert reply["ename"] == "KeyboardInterrupt"
    interrupted, finished = nbkit.runs()
    assert interrupted.state is RunState.STOPPED
    assert finished.state is RunState.FINISHED


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ConfigError, match="mixed_precision='int4' is not supp"):
        nbkit.notebook_launcher(print, mixed_precision="int4")
    with pytest.raises(ConfigError, match="num_processes=0 is below 1"):
        nbkit.notebook_launcher(print, num_processes=0)
    with pytest.raises(ConfigError, match="num_nodes=2 is not supported"):
        nbkit.notebook_launcher(print, num_nodes=2)
