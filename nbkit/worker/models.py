"""The model by its registered name, with fresh weights."""

from __future__ import annotations

import inspect

from torch import nn

from nbkit import registry
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError

__all__ = ["build"]

# Their heads take a fixed number of features from the last map, or they pool it away.
_SMALLEST_IMAGE = {"alexnet": 63, "inception_v3": 75, "squeezenet1_0": 21}
_FIXED_IMAGE = ("vit_", "swin_", "maxvit_")


def build(config: ExperimentConfig, num_classes: int) -> nn.Module:
    """Return the configured model with random weights, in fp32 on the CPU.

    Parameters
    ----------
    config
        ``model`` and ``image_size`` matter.
    num_classes
        Outputs of the model.

    Raises
    ------
    ConfigError
        If the model cannot take images of the configured size.
    """
    builder = registry.resolve("models", config.model)
    smallest = _SMALLEST_IMAGE.get(config.model, 1)
    if config.image_size < smallest:
        message = (
            f"image_size={config.image_size} is too small for {config.model}; "
            f"use {smallest} or more."
        )
        raise ConfigError(message)
    arguments: dict[str, object] = {"weights": None, "num_classes": num_classes}
    if config.model in ("inception_v3", "googlenet"):
        # Their training outputs are tuples unless the auxiliary heads are left out.
        arguments |= {"aux_logits": False, "init_weights": True}
    if config.model.startswith(_FIXED_IMAGE) and _takes_image_size(builder, config):
        arguments["image_size"] = config.image_size
    return builder(**arguments)


def _takes_image_size(builder: object, config: ExperimentConfig) -> bool:
    """Return whether a builder hands ``image_size`` on; only vit_* does."""
    named = config.model.startswith("vit_")
    return named and callable(builder) and "kwargs" in inspect.signature(builder).parameters
