"""That the suite's ranks are spared torch's compiler: two seconds of CPU each."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

# What a training of several ranks asks of torch, in the order of nbkit.worker.
PROGRAM = """
import json, os, sys
import nbkit.worker.allreduce, nbkit.worker.process_group, nbkit.worker.load
tasks = {"torch", "torchvision", "torch._dynamo"} & set(sys.modules)
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
compiled = [name in sys.modules for name in compiler]
print(json.dumps({"tasks": sorted(tasks), "compiled": compiled}), flush=True)
os._exit(0)  # gloo's threads now and then abort a process at its end
"""


@pytest.fixture(scope="module")
def loaded() -> dict[str, Any]:
    """Return which modules the program has: after importing tasks, and at its end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("WHOLE_TORCH", raising=False)
        return json.loads(subprocess.check_output([sys.executable, "-c", PROGRAM]))


def test_ranks_that_train_nothing_start_without_torchs_compiler(loaded: dict[str, Any]):
    assert loaded["tasks"] == ["torch"]


def test_quick_torch_trains_without_the_compiler(loaded: dict[str, Any]):
    assert loaded["compiled"] == [False] * 3
