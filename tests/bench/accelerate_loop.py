"""The same loop through accelerate's ``notebook_launcher``, as a notebook would."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any


def train(settings: dict[str, Any]) -> None:
    """Train one rank; rank 0 prints CPU time per image and the first step's moment."""
    import torch
    import torchvision
    from accelerate import Accelerator
    from torch import nn

    accelerator = Accelerator(cpu=True)
    batch, size = settings["batch_size_per_gpu"], settings["image_size"]
    model = getattr(torchvision.models, settings["model"])(num_classes=1000)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=True
    )
    model = model.to(memory_format=torch.channels_last)
    model, optimizer = accelerator.prepare(model, optimizer)
    images = torch.randn(batch, 3, size, size).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,))
    criterion = nn.CrossEntropyLoss()
    first_step_at = cpu_start = 0.0
    for step in range(settings["steps"]):
        if step == settings["warmup_steps"]:
            cpu_start = sum(os.times()[:2])
        optimizer.zero_grad()
        accelerator.backward(criterion(model(images), labels))
        optimizer.step()
        if step == 0:
            first_step_at = time.time()
    cpu = torch.tensor([sum(os.times()[:2]) - cpu_start], dtype=torch.float64)
    total = accelerator.reduce(cpu, reduction="sum")
    if accelerator.is_main_process:
        counted = (settings["steps"] - settings["warmup_steps"]) * batch
        images_counted = counted * accelerator.num_processes
        line = {
            "cpu_ms_per_image": 1e3 * float(total) / images_counted,
            "first_step_at": first_step_at,
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    from accelerate import notebook_launcher

    given = json.loads(sys.argv[1])
    notebook_launcher(train, (given,), num_processes=given["ranks"])
