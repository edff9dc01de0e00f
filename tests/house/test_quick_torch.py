"""That the suite's ranks are spared torch's compiler: a second of CPU each."""

from __future__ import annotations

import subprocess
import sys

import pytest

# What a training of several ranks asks of torch, in the order of nbkit.worker.
PROGRAM = """
import os, sys
import torch, torchvision
import torch.distributed as dist
from nbkit.config import ExperimentConfig
from nbkit.worker.seeding import seed

device = torch.device("cpu")
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
seed(ExperimentConfig(deterministic={deterministic}), device)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
model(torch.ones(1, 1)).sum().backward()
optimizer.step()
dist.destroy_process_group()
print("torch._dynamo.convert_frame" in sys.modules, flush=True)
os._exit(0)  # gloo's threads now and then abort a process at its end
"""


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_training_loads_the_compiler_only_where_torch_says_that_it_must(
    deterministic: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("WHOLE_TORCH", raising=False)
    program = PROGRAM.format(deterministic=deterministic)

    # torch tells its compiler what is deterministic, and it has to be there for that.
    assert printed(program) == f"{deterministic}\n"


def printed(program: str) -> str:
    """Return what a fresh interpreter prints."""
    run = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    )
    return run.stdout
