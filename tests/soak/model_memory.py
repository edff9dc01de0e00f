"""Measures what a model keeps for its backward pass, per image, for nbkit's estimate.

Run by hand when models are added; it writes the table that comes with nbkit::

    python -m tests.soak.model_memory > nbkit/estimates/model_memory.csv

Nothing is computed and no GPU is needed: tensors that have a shape and a device but no
content pass through the model as they would on a GPU, and torch says which of them it
keeps.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.nn import functional

from nbkit import registry
from nbkit.config import ExperimentConfig
from nbkit.estimates.memory import COLUMNS, ModelMemory
from nbkit.worker import models

USUAL_IMAGE_SIZE = {"inception_v3": 299, "resnet20": 32}
NUM_CLASSES = 1_000
BATCH = 2


def measure(name: str) -> ModelMemory:
    """Return what a registered model keeps, at the size of images it is meant for."""
    size = USUAL_IMAGE_SIZE.get(name, 224)
    config = ExperimentConfig(model=name, image_size=size)
    model = models.build(config, NUM_CLASSES).train()

    def per_image(dtype: torch.dtype | None) -> int:
        # What is kept once, such as weights in 16 bits, falls out of the difference.
        once, twice = (kept_bytes(model, n, size, dtype) for n in (BATCH, 2 * BATCH))
        return (twice - once) // BATCH

    return ModelMemory(
        name,
        sum(weight.numel() for weight in model.parameters()),
        size,
        per_image(None),
        per_image(torch.bfloat16),
    )


def kept_bytes(
    model: nn.Module, batch: int, size: int, dtype: torch.dtype | None
) -> int:
    """Return the bytes that a GPU's forward pass keeps, without the weights."""
    with FakeTensorMode(), as_on_a_gpu(dtype):
        tensors = [*model.named_parameters(), *model.named_buffers()]
        state = {key: without_content(tensor) for key, tensor in tensors}
        images = without_content(torch.empty(batch, 3, size, size))
        labels = torch.zeros(batch, dtype=torch.long, device="cuda")

        def loss() -> torch.Tensor:
            outputs = torch.func.functional_call(model, state, (images,))
            return functional.cross_entropy(outputs, labels)

        return saved_bytes(loss, state.values())


def saved_bytes(loss: Any, weights: Any) -> int:
    """Return the bytes that a forward pass saves, weights left out."""
    own = {tensor.untyped_storage()._cdata for tensor in weights}
    found: dict[int, Any] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        found[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss()
    return sum(it.nbytes() for key, it in found.items() if key not in own)


def without_content(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor on a GPU that is not there."""
    fake = torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda")
    if fake.ndim == 4:
        fake = fake.to(memory_format=torch.channels_last)
    return fake.requires_grad_(tensor.requires_grad)


@contextmanager
def as_on_a_gpu(dtype: torch.dtype | None) -> Iterator[None]:
    """Choose number formats and kernels as torch does on a GPU."""
    # torch.autocast refuses where there is no GPU; what it switches does not.
    autocast = torch.is_autocast_enabled("cuda")
    before = torch.get_autocast_dtype("cuda")
    attention = functional.scaled_dot_product_attention
    torch.set_autocast_enabled("cuda", dtype is not None)
    if dtype is not None:
        torch.set_autocast_dtype("cuda", dtype)
    functional.scaled_dot_product_attention = fused_attention
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = attention
        torch.set_autocast_enabled("cuda", autocast)
        torch.set_autocast_dtype("cuda", before)
        torch.clear_autocast_cache()


def fused_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
) -> torch.Tensor:
    """Return attention by the kernel that a GPU has for the number format.

    Without a GPU to ask, torch takes the kernel that keeps every score.
    """
    if query.dtype == torch.float32:
        efficient = torch.ops.aten._scaled_dot_product_efficient_attention
        return efficient(query, key, value, None, True)[0]
    return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value)[0]


def main() -> None:
    """Write the table of every model that is registered."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name in registry.names("models"):
        row = measure(name)
        writer.writerow([getattr(row, column) for column in COLUMNS])
        print(name, file=sys.stderr)


if __name__ == "__main__":
    main()
