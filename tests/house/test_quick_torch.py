"""That the suite's ranks are spared torch's compiler: two seconds of CPU each."""

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
seed(ExperimentConfig(deterministic=True), device)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
model(torch.ones(1, 1)).sum().backward()
optimizer.step()
torch.Generator()
dist.destroy_process_group()
compiler = ("torch._dynamo.convert_frame", "torch._decomp", "torch.onnx")
print([name in sys.modules for name in compiler], flush=True)
os._exit(0)  # gloo's threads now and then abort a process at its end
"""


def test_quick_torch_trains_without_the_compiler(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("WHOLE_TORCH", raising=False)
    argv = [sys.executable, "-c", PROGRAM]

    assert subprocess.check_output(argv, text=True) == f"{[False] * 3}\n"
