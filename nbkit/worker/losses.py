"""What the training makes small, for one class an image or for several labels."""

from __future__ import annotations

import torch
from torch import nn

from nbkit.config import ExperimentConfig

__all__ = ["evaluation_losses", "training_loss"]


def training_loss(config: ExperimentConfig, *, is_multi_label: bool) -> nn.Module:
    """Return the loss of a batch, from logits and labels.

    Parameters
    ----------
    config
        ``label_smoothing`` matters; it is for one class an image only.
    is_multi_label
        Whether labels are 0 or 1 for each of several, float, of shape (n, labels),
        instead of the index of a class, int64, of shape (n,).
    """
    if is_multi_label:
        return nn.BCEWithLogitsLoss()
    return nn.CrossEntropyLoss(label_smoothing=config.label_smoothing)


def evaluation_losses(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the loss of every image, without label smoothing.

    Parameters
    ----------
    outputs
        Logits, float, shape ``(n, labels)``.
    labels
        As of `training_loss`.

    Returns
    -------
    torch.Tensor
        Float, shape ``(n,)``; with several labels the mean over these.
    """
    if labels.dim() == 1:
        return nn.functional.cross_entropy(outputs, labels, reduction="none")
    losses = nn.functional.binary_cross_entropy_with_logits(
        outputs, labels, reduction="none"
    )
    return losses.mean(1)
