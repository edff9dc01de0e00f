"""`batch_size_per_gpu="max"`: the largest batch that fits, probed in another process.

Running out of memory leaves a process with fragmented memory and a full cache; so the
search runs in a process of its own, on rank 0's device, before the ranks allocate.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, DeviceError
from nbkit.worker import models, optimizers
from nbkit.worker.precision import Precision
from nbkit.worker.rank import Rank

__all__ = ["fits", "largest", "resolve"]

LIMIT = 8192
"""No search goes further: a global batch beyond this trains nothing sensibly."""


def resolve(
    config: ExperimentConfig,
    rank: Rank,
    device: torch.device,
    group: dist.ProcessGroup | None,
) -> int:
    """Return the batch size of every rank; called by all.

    Raises
    ------
    ConfigError
        If ``max`` is asked for without a GPU.
    DeviceError
        If not even one image fits.
    """
    if config.batch_size_per_gpu != "max":
        return config.batch_size_per_gpu
    if device.type != "cuda":
        message = (
            "batch_size_per_gpu='max' is probed in GPU memory, and this run is on "
            "CPUs; use a number."
        )
        raise ConfigError(message)
    found = [_probe(rank) if rank.rank == 0 else 0]
    if group is not None:
        dist.broadcast_object_list(found, src=0, group=group)
    if not found[0]:
        message = (
            f"batch_size_per_gpu='max': not one image of {config.image_size} px fits "
            f"into the GPU's memory with {config.model}; use a smaller image or model."
        )
        raise DeviceError(message)
    return found[0]


def largest(fits: Callable[[int], bool], limit: int = LIMIT) -> int:
    """Return the largest size that fits; 0 if 1 does not.

    Powers of two are tried first, then the step half-way to the next one: 64, 96, 128,
    192 ... are sizes that kernels like.

    Parameters
    ----------
    fits
        Whether a size fits; asked for growing sizes only until one does not.
    limit
        No larger size is tried.
    """
    size = 1
    if not fits(size):
        return 0
    while size * 2 <= limit and fits(size * 2):
        size *= 2
    half_step = size + size // 2
    if size > 1 and half_step <= limit and fits(half_step):
        return half_step
    return size


def fits(config: ExperimentConfig, device: torch.device, size: int) -> bool:
    """Return whether two training steps at a batch size stay within memory.

    The second step counts: the optimizer's state is made in the first.
    """
    try:
        _train_two_steps(config, device, size)
    except torch.OutOfMemoryError:
        return False
    finally:
        torch.cuda.empty_cache()
    return True


def _train_two_steps(
    config: ExperimentConfig, device: torch.device, size: int
) -> None:
    precision = Precision(config, device)
    model = models.build(config, config.num_classes or 1000).to(device)
    model = precision.to_layout(model).train()
    optimizer = optimizers.build(config, model)
    side = config.image_size
    images = torch.randn(size, 3, side, side, device=device)
    images = images.to(memory_format=precision.memory_format)
    labels = torch.zeros(size, dtype=torch.int64, device=device)
    criterion = nn.CrossEntropyLoss()
    for _ in range(2):
        optimizer.zero_grad(set_to_none=True)
        with precision.autocast():
            loss = criterion(model(images), labels)
        precision.scaler.scale(loss).backward()
        precision.scaler.step(optimizer)
        precision.scaler.update()


def _probe(rank: Rank) -> int:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "nbkit.worker.batch_size", str(rank.paths.root)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "LOCAL_RANK": str(rank.local_rank)},
    )
    if done.returncode:
        message = (
            f"probing the largest batch ended with exit code {done.returncode}; see "
            "above in this log, or set batch_size_per_gpu to a number."
        )
        raise DeviceError(message)
    return int(json.loads(done.stdout)["batch_size"])


def main() -> None:
    """Print the largest batch size for the run in the folder given."""
    text = (Path(sys.argv[1]) / "config.json").read_bytes()
    config = ExperimentConfig.from_json(text)
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    size = largest(lambda size: fits(config, device, size))
    sys.stdout.write(json.dumps({"batch_size": size}) + "\n")


if __name__ == "__main__":
    main()
