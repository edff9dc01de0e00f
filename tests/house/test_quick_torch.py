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
seed(ExperimentConfig(deterministic={deterministic}), device)
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


EXPORTS = """
import torch, torchvision
import torch.distributed.tensor
images = torch.ones(2, 3)
exported = torch.export.export(torch.nn.Linear(3, 1), (images,))
print(tuple(exported.module()(images).shape))
picked = torch._meta_registrations.meta_index_Tensor(images, [torch.ones(4).long()])
print(tuple(picked.shape), flush=True)
"""


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_training_loads_the_compiler_only_where_torch_says_that_it_must(
    deterministic: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("WHOLE_TORCH", raising=False)
    program = PROGRAM.format(deterministic=deterministic)

    # torch tells its compiler what is deterministic, and it has to be there for that.
    assert printed(program) == f"{[deterministic] * 3}\n"


def test_who_exports_or_asks_for_shapes_gets_all_of_torch(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delenv("WHOLE_TORCH", raising=False)

    assert printed(EXPORTS) == "(2, 1)\n(4, 3)\n"


def printed(program: str) -> str:
    """Return what a fresh interpreter prints."""
    run = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    )
    return run.stdout
