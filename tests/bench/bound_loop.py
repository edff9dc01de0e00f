"""A training whose ranks are bound to CPUs in another way every few steps.

Started by bare torchrun; rank 0 prints one line of JSON: images/s of every few steps,
by binding. Two trainings of the same configuration differ by 6 %, which would hide what
a binding costs; steps that follow each other in one training differ by half of that.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torchvision
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from nbkit.telemetry.cpu_binding import choose
from nbkit.telemetry.topology import read_cpus

STEPS = 3
"""Of a block, after one that does not count."""


def main() -> None:
    """Train, and print every block's rate."""
    settings = json.loads(sys.argv[1])
    batch, size = settings["batch_size_per_gpu"], settings["image_size"]
    rank, world = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    cpus = read_cpus()
    places = {arm: choose(arm, cpus, rank, world).cpus for arm in settings["arms"]}
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = getattr(torchvision.models, settings["model"])(num_classes=1000)
    model = model.to(memory_format=torch.channels_last)
    model = DistributedDataParallel(
        model, gradient_as_bucket_view=True, static_graph=True
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
    criterion = nn.CrossEntropyLoss()
    images = torch.randn(batch, 3, size, size).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        criterion(model(images), labels).backward()
        optimizer.step()

    for _ in range(settings["warmup_steps"]):
        step()
    rates: dict[str, list[float]] = {arm: [] for arm in places}
    for number in range(settings["rounds"]):
        for arm in places if number % 2 == 0 else reversed(places):
            _bind(places[arm])
            step()
            dist.barrier()
            began = time.perf_counter()
            for _ in range(STEPS):
                step()
            dist.barrier()
            seconds = time.perf_counter() - began
            rates[arm].append(STEPS * batch * world / seconds)
    if dist.get_rank() == 0:
        print(json.dumps({"rates": rates, "steps": STEPS, "cpus": places}), flush=True)
    dist.destroy_process_group()


def _bind(cpus: tuple[int, ...]) -> None:
    """Bind every thread of this process, as those of a rank that is bound at its start.

    Autograd and gloo have started theirs by now.
    """
    for thread in Path("/proc/self/task").iterdir():
        os.sched_setaffinity(int(thread.name), cpus)


if __name__ == "__main__":
    main()
