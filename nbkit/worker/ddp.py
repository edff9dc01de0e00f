"""Gradient all-reduce between ranks: torch's DDP and its options."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from nbkit.config import ExperimentConfig
from nbkit.worker.precision import Precision
from nbkit.worker.rank import Rank
from nbkit.worker.step_clock import StepClock


def wrap_ddp(
    raw_model: nn.Module,
    config: ExperimentConfig,
    rank: Rank,
    device: torch.device,
    clock: StepClock,
) -> nn.Module:
    """Return the model with gradient exchange, compiled where configured."""
    model = raw_model
    if rank.world_size > 1:
        model = DistributedDataParallel(
            raw_model,
            device_ids=[device.index] if device.type == "cuda" else None,
            gradient_as_bucket_view=True,
            **_buffer_exchange(raw_model),
            # A static graph with no_sync is an internal assert of DDP, and
            # torch.compile splits the graph at the buckets itself.
            static_graph=config.gradient_accumulation_steps == 1 and not config.compile,
        )

        # DDP compares annotations with its own types, which names in quotes are not.
        def exchange(group, bucket):  # noqa: ANN001, ANN202
            if bucket.is_last():
                clock.last_bucket_ready()
            return allreduce_hook(group, bucket)

        model.register_comm_hook(None, exchange)
    return torch.compile(model) if config.compile else model  # type: ignore[return-value]


def warm_up_ddp(
    model: nn.Module,
    config: ExperimentConfig,
    precision: Precision,
    device: torch.device,
    batch: int,
    *,
    passes: int,
) -> None:
    """Restore the state of gradient exchange from when the checkpoint was saved."""
    # DDP sorts its buckets again during the first steps, and the order in which
    # gradients of three or more ranks are added up depends on the buckets. Passes that
    # are thrown away make a resumed attempt add in the order of an uninterrupted one.
    side = config.image_size
    for _ in range(passes):
        images = torch.zeros(batch, 3, side, side, device=device)
        images = images.to(memory_format=precision.memory_format)
        with precision.autocast():
            outputs = model(images)
        outputs.float().sum().backward()
        model.zero_grad(set_to_none=True)


def ddp_of(model: nn.Module) -> DistributedDataParallel | None:
    """Return the DDP module of a model; None on one rank."""
    # torch.compile wraps it.
    inner = (m for m in model.modules() if isinstance(m, DistributedDataParallel))
    return next(inner, None)


def no_sync(
    exchanging: DistributedDataParallel | None,
) -> contextlib.AbstractContextManager[None]:
    """Return a context in which gradients stay on their rank."""
    return contextlib.nullcontext() if exchanging is None else exchanging.no_sync()


def _buffer_exchange(model: nn.Module) -> dict[str, Any]:
    """Return the argument by which DDP leaves running statistics alone in a step."""
    # DDP sends rank 0's buffers to the others before every forward pass: 159 of a
    # ResNet-50. A training step of batch normalisation does not read its running
    # statistics, and an evaluation takes rank 0's first. Buffers of any other kind may
    # be read, so that a model which has some keeps DDP's default.
    statistics = {
        id(buffer)
        for module in model.modules()
        if isinstance(module, _BatchNorm)
        for buffer in module.buffers(recurse=False)
    }
    if any(id(buffer) not in statistics for buffer in model.buffers()):
        return {}
    # The first name is deprecated where the second exists.
    names = inspect.signature(DistributedDataParallel.__init__).parameters
    newer = "forward_sync_buffers" in names
    return {"forward_sync_buffers" if newer else "broadcast_buffers": False}
