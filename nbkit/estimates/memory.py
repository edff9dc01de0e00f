"""Estimated GPU memory of a training, without torch.

What a model keeps of each image for its backward pass was measured once, for every
model that comes with nbkit, by ``tests/soak/model_memory.py``; the rest is
arithmetic.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass, fields
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbkit.config import ExperimentConfig


LEFT_OUT = (
    "the CUDA context (about 0.5 GiB), cuDNN workspaces, NCCL and loader buffers, and "
    "fragmentation"
)
"""Memory that the estimate excludes."""

_FP32_BYTES = 4
_HALF_BYTES = 2


@dataclass(frozen=True)
class ModelMemory:
    """Memory of one model in training, with ``channels_last``."""

    model: str
    parameters: int
    """Weights that are trained, with 1,000 outputs."""
    image_size: int
    """Side of the images, in pixels, with which the rest was measured."""
    activation_bytes_fp32: int
    """Kept of each image for the backward pass, in ``fp32`` and ``tf32``."""
    activation_bytes_16bit: int
    """The same in ``fp16`` and ``bf16``."""


COLUMNS = tuple(field.name for field in fields(ModelMemory))
"""Of the table that comes with nbkit."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Memory of one rank in training, in bytes; see `LEFT_OUT`."""

    weights_bytes: int
    """In fp32, and again in the 16 bits that the layers compute in."""
    gradients_bytes: int
    optimizer_bytes: int
    """Momentum, or both moments of AdamW."""
    activations_bytes: int
    """What all layers keep of all images of one pass, the images among it."""

    @property
    def total_bytes(self) -> int:
        """Total, reached between the forward and the backward pass."""
        return (
            self.weights_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.activations_bytes
        )


def estimate_memory(config: ExperimentConfig) -> MemoryEstimate | None:
    """Return the estimated memory of each rank; None if unknown.

    Notes
    -----
    Activations are assumed to grow with the image area. This holds for convolutions;
    for attention in transformers, it requires fused kernels.
    ``compile`` usually needs less.
    """
    batch = config.batch_size_per_gpu
    model = _table().get(config.model)
    if config.task != "train" or model is None or batch == "max":
        return None
    half = config.precision in ("fp16", "bf16")
    activation_bytes = (
        model.activation_bytes_16bit if half else model.activation_bytes_fp32
    )
    area = (config.image_size / model.image_size) ** 2
    return MemoryEstimate(
        weights_bytes=model.parameters * (_FP32_BYTES + half * _HALF_BYTES),
        gradients_bytes=model.parameters * _FP32_BYTES,
        optimizer_bytes=model.parameters * _FP32_BYTES * _moments(config),
        activations_bytes=round(activation_bytes * area * batch),
    )


def _moments(config: ExperimentConfig) -> int:
    """Return how many numbers the optimizer keeps for each weight."""
    if config.optimizer == "sgd" and config.momentum == 0:
        return 0
    return 2 if config.optimizer == "adamw" else 1


@functools.cache
def _table() -> dict[str, ModelMemory]:
    file = resources.files("nbkit.estimates") / "model_memory.csv"
    rows = csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    models = [
        ModelMemory(row["model"], *(int(row[name]) for name in COLUMNS[1:]))
        for row in rows
    ]
    return {row.model: row for row in models}
