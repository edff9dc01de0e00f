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


@pytest.mark.parametrize(
    ("program", "answer"),
    [
        (PROGRAM.format(deterministic=False), f"{[False] * 3}\n"),
        (PROGRAM.format(deterministic=True), f"{[False] * 3}\n"),
        # Once the compiler is there, it knows what is deterministic and was set.
        (COMPILES, "2.0\nTrue True\n"),
        # Who exports or asks for shapes gets all of torch.
        (EXPORTS, "(2, 1)\n(4, 3)\n"),
    ],
    ids=["training", "deterministic", "compiles", "exports"],
)
def test_quick_torch_loads_the_compiler_only_where_needed(
    program: str, answer: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("WHOLE_TORCH", raising=False)

    assert printed(program) == answer


def printed(program: str) -> str:
    """Return what a fresh interpreter prints."""
    run = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    )
    return run.stdout
