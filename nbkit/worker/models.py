"""The model by its registered name, with fresh weights."""

from __future__ import annotations

from typing import Any

from torch import nn

from nbkit import registry
from nbkit.config import ExperimentConfig
from nbkit.config.image_sizes import IMAGE_MULTIPLE


def build(config: ExperimentConfig, num_classes: int) -> nn.Module:
    """Return the configured model with random weights, in fp32 on the CPU."""
    builder = registry.resolve("models", config.model)
    arguments = _arguments(config.model, config.image_size)
    return builder(weights=None, num_classes=num_classes, **arguments)


def _arguments(name: str, image_size: int) -> dict[str, Any]:
    if name in ("inception_v3", "googlenet"):
        # Their training outputs are tuples unless the auxiliary heads are left out. The
        # pretrained weights want a normalisation of their own on top of ImageNet's: no
        # checkpoint has it, so it is that of all weights.
        return {"aux_logits": False, "init_weights": True, "transform_input": True}
    if name == "maxvit_t":
        return {"input_size": (image_size, image_size)}
    if name in IMAGE_MULTIPLE:
        return {"image_size": image_size}
    return {}
