"""The model by its registered name, with fresh weights."""

from __future__ import annotations

from typing import Any

from torch import nn

from nbkit import registry
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError

__all__ = ["build"]

# Smallest image, in pixels, whose feature maps do not shrink to nothing, found by
# trying every size; what is not named here takes every size that a config allows.
_SMALLEST_IMAGE = {
    "alexnet": 63,
    "convnext_": 32,
    "densenet": 29,
    "inception_v3": 75,
    "squeezenet1_0": 21,
    "squeezenet1_1": 17,
    "vgg": 32,
}

# Models that are built for one size of image, which they cut into patches or windows:
# it has to be a multiple of this.
_IMAGE_MULTIPLE = {
    "maxvit_t": 224,
    "vit_b_16": 16,
    "vit_b_32": 32,
    "vit_h_14": 14,
    "vit_l_16": 16,
    "vit_l_32": 32,
}


def build(config: ExperimentConfig, num_classes: int) -> nn.Module:
    """Return the configured model with random weights, in fp32 on the CPU.

    Parameters
    ----------
    config
        ``model`` and ``image_size`` matter.
    num_classes
        Outputs of the model.

    Returns
    -------
    torch.nn.Module
        Images of shape ``(n, 3, image_size, image_size)`` in, logits of shape
        ``(n, num_classes)`` out, initialised as its authors do.

    Raises
    ------
    ConfigError
        If the model cannot take images of the configured size.
    """
    builder = registry.resolve("models", config.model)
    _check_image_size(config.model, config.image_size)
    arguments = _arguments(config.model, config.image_size)
    return builder(weights=None, num_classes=num_classes, **arguments)


def _arguments(name: str, image_size: int) -> dict[str, Any]:
    if name in ("inception_v3", "googlenet"):
        # Their training outputs are tuples unless the auxiliary heads are left out.
        return {"aux_logits": False, "init_weights": True}
    if name == "maxvit_t":
        return {"input_size": (image_size, image_size)}
    if name in _IMAGE_MULTIPLE:
        return {"image_size": image_size}
    return {}


def _check_image_size(name: str, size: int) -> None:
    for family, smallest in _SMALLEST_IMAGE.items():
        if name.startswith(family) and size < smallest:
            message = (
                f"image_size={size} is below {smallest}, the smallest that {name} "
                f"takes; use {smallest} or more."
            )
            raise ConfigError(message)
    multiple = _IMAGE_MULTIPLE.get(name, 1)
    if size % multiple:
        below, above = size // multiple * multiple, (size // multiple + 1) * multiple
        choice = f"{below} or {above}" if below else f"{above}"
        message = (
            f"image_size={size} is not a multiple of {multiple}, which {name} needs; "
            f"use {choice}."
        )
        raise ConfigError(message)
