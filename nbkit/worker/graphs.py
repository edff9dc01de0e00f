"""CUDA graphs: a model's kernels, recorded once and replayed in every step."""

from __future__ import annotations

import torch
from torch import nn

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.worker.precision import Precision


def capture(
    raw_model: nn.Module,
    config: ExperimentConfig,
    precision: Precision,
    device: torch.device,
    batch: int,
) -> None:
    """Replace the model's training passes by CUDA graphs; evaluation stays eager."""
    # The graphs are captured before DDP wraps the model, as torch asks for; the
    # gradients then arrive all together, so that their exchange cannot overlap with
    # computing.
    # https://docs.pytorch.org/docs/stable/generated/torch.cuda.make_graphed_callables.html
    if device.type != "cuda":
        message = "cuda_graphs=True needs a GPU. Set cuda_graphs=False."
        raise ConfigError(message)
    side = config.image_size
    images = torch.randn(batch, 3, side, side, device=device)
    images = images.to(memory_format=precision.memory_format)
    state = {name: value.clone() for name, value in raw_model.state_dict().items()}
    raw_model.train()
    with precision.autocast():
        torch.cuda.make_graphed_callables(raw_model, (images,))
    # The warm-up passes moved the running statistics.
    raw_model.load_state_dict(state)
