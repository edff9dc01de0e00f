"""What makes two runs of one configuration begin alike."""

from __future__ import annotations

import random

import torch

from nbkit.config import ExperimentConfig

__all__ = ["seed"]


def seed(config: ExperimentConfig) -> None:
    """Seed every generator alike: all ranks build the same weights."""
    random.seed(config.seed)
    torch.manual_seed(config.seed)
    torch.backends.cudnn.benchmark = not config.deterministic
    torch.use_deterministic_algorithms(config.deterministic)
