"""What makes two runs of one configuration begin alike."""

from __future__ import annotations

import os
import random

import torch

from nbkit.config import ExperimentConfig
from nbkit.config.determinism import not_deterministic, variables_against
from nbkit.errors import ConfigError

__all__ = ["seed"]


def seed(config: ExperimentConfig, device: torch.device) -> None:
    """Seed every generator alike: all ranks build the same weights.

    Raises
    ------
    ConfigError
        If ``deterministic`` cannot hold on this device.
    """
    if config.deterministic and device.type == "cuda":
        _check_deterministic(config)
    random.seed(config.seed)
    torch.manual_seed(config.seed)
    torch.backends.cudnn.benchmark = not config.deterministic
    # torch imports its compiler for this: a second of CPU, also where nothing changes.
    if torch.are_deterministic_algorithms_enabled() != config.deterministic:
        torch.use_deterministic_algorithms(config.deterministic)


def _check_deterministic(config: ExperimentConfig) -> None:
    why = not_deterministic(config.model) if config.task == "train" else None
    if why is not None:
        message = f"deterministic=True: {why}."
        raise ConfigError(message)
    against = variables_against(os.environ) if config.world_size > 1 else None
    if against is not None:
        raise ConfigError(against)
