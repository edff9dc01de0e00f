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


COMPILES = """
import torch
torch.use_deterministic_algorithms(True)
import torch._inductor.config as settings
settings.max_autotune = True
compiled = torch.compile(lambda x: x + 1, backend="eager")
print(compiled(torch.ones(1)).item())
print(torch._inductor.config.deterministic, torch._inductor.config.max_autotune)
"""


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_training_does_not_load_the_compiler(
    deterministic: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("WHOLE_TORCH", raising=False)
    program = PROGRAM.format(deterministic=deterministic)

    assert printed(program) == f"{[False] * 3}\n"


def test_the_compiler_knows_once_it_is_there_what_is_deterministic_and_was_set(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delenv("WHOLE_TORCH", raising=False)

    assert printed(COMPILES) == "2.0\nTrue True\n"


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
