"""Seeds, so that two runs of one configuration begin alike."""

from __future__ import annotations

import contextlib
import os
import random

import torch

from nbkit.config import ExperimentConfig
from nbkit.config.determinism import not_deterministic, variables_against
from nbkit.errors import ConfigError
from nbkit.worker.rank import Rank


def seed(config: ExperimentConfig, device: torch.device) -> None:
    """Seed every generator alike: all ranks build the same weights."""
    if config.deterministic and device.type == "cuda":
        why = not_deterministic(config.model) if config.task == "train" else None
        if why is not None:
            message = f"deterministic=True: {why}."
            raise ConfigError(message)
        against = variables_against(os.environ) if config.world_size > 1 else None
        if against is not None:
            raise ConfigError(against)
    seed_generators(config.seed)
    if device.type == "cuda":
        choose_search(config)
    # torch imports its compiler for this: a second of CPU, also where nothing changes.
    if torch.are_deterministic_algorithms_enabled() != config.deterministic:
        torch.use_deterministic_algorithms(config.deterministic)


def seed_rank(config: ExperimentConfig, rank: Rank) -> None:
    """Let each rank draw its own numbers, once all have built the same weights."""
    # Else all of them would drop the same activations. Rank 0 continues as a lone rank.
    if rank.rank:
        # Not the sum: rank 1 would draw what rank 0 draws with the next seed.
        own = random.Random(f"rank/{config.seed}/{rank.rank}").getrandbits(63)
        seed_generators(own)


def choose_search(config: ExperimentConfig) -> None:
    """Let cuDNN search for convolutions as configured, in this process."""
    search = config.cudnn_benchmark
    torch.backends.cudnn.benchmark = search != "off"
    if search != "off":
        limit = 0 if search == "exhaustive" else search
        torch.backends.cudnn.benchmark_limit = limit


def seed_generators(number: int) -> None:
    """Seed the generators of Python, torch and, where it is installed, NumPy."""
    random.seed(number)
    torch.manual_seed(number)
    with contextlib.suppress(ImportError):
        import numpy as np

        np.random.seed(number % 2**32)
