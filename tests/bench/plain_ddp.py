"""A hand-written DDP loop with the same settings as nbkit's worker, and nothing else.

Started by bare torchrun; rank 0 prints one line of JSON. It is what the worker is
measured against: what a careful user would write in a notebook's ``train.py``.
"""

from __future__ import annotations

import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torchvision
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train for a while and print CPU time per image and the first step's moment."""
    settings = json.loads(sys.argv[1])
    steps, warmup_steps = settings["steps"], settings["warmup_steps"]
    batch, size = settings["batch_size_per_gpu"], settings["image_size"]
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = getattr(torchvision.models, settings["model"])(num_classes=1000)
    model = model.to(memory_format=torch.channels_last)
    model = DistributedDataParallel(
        model, gradient_as_bucket_view=True, static_graph=True
    )
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=True
    )
    criterion = nn.CrossEntropyLoss()
    images = torch.randn(batch, 3, size, size).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,))
    first_step_at = cpu_start = wall_start = 0.0
    for step in range(steps):
        if step == warmup_steps:
            cpu_start, wall_start = _cpu_seconds(), time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        if step == 0:
            first_step_at = time.time()
    counted = (steps - warmup_steps) * batch
    mine = torch.tensor([_cpu_seconds() - cpu_start], dtype=torch.float64)
    dist.all_reduce(mine)
    if dist.get_rank() == 0:
        wall = time.perf_counter() - wall_start
        world = int(os.environ["WORLD_SIZE"])
        line = {
            "cpu_ms_per_image": 1e3 * mine.item() / (counted * world),
            "images_per_second": counted * world / wall,
            "first_step_at": first_step_at,
        }
        print(json.dumps(line), flush=True)
    dist.destroy_process_group()


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system


if __name__ == "__main__":
    main()
