"""Losses of a training: one class per image, or several labels."""

from __future__ import annotations

import torch
from torch import nn

from nbkit.config import ExperimentConfig
from nbkit.datasets.label_weighting import refuse_one_class
from nbkit.datasets.manifest import Manifest
from nbkit.worker.rank import Rank, say


def training_loss(
    config: ExperimentConfig, manifest: Manifest | None, rank: Rank
) -> nn.Module:
    """Return the loss of a batch, from logits and labels."""
    # Labels are the index of a class, int64, of shape (n,); or, where an image can have
    # several, 0 or 1 for each of them, float, of shape (n, labels).
    if manifest is not None and manifest.is_multi_label:
        if config.label_weighting == "none":
            return nn.BCEWithLogitsLoss()
        weights = label_weights(manifest)
        unknown = [label for label, weight in weights.items() if weight is None]
        if unknown and rank.rank == 0:
            say(
                f"label_weighting: weight 1 for {', '.join(unknown)}, because "
                "every or no training image has the label"
            )
        return nn.BCEWithLogitsLoss(
            pos_weight=torch.tensor(
                [1.0 if weight is None else weight for weight in weights.values()]
            )
        )
    refuse_one_class(config)
    return nn.CrossEntropyLoss(label_smoothing=config.label_smoothing)


def label_weights(manifest: Manifest) -> dict[str, float | None]:
    """Return for each label negatives over positives of the training images."""
    # None where all of them have the label, or none has it. The more images lack a
    # label, the more one that has it counts: in the loss, both weigh the same together.
    images = manifest.train
    labels = [images.label(number) for number in range(len(images))]
    counts = [sum(column) for column in zip(*labels, strict=True)]  # type: ignore[arg-type]
    return {
        label: (len(labels) - count) / count if 0 < count < len(labels) else None
        for label, count in zip(manifest.classes, counts, strict=True)
    }


def evaluation_losses(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the loss of every image, without label smoothing."""
    if labels.dim() == 1:
        return nn.functional.cross_entropy(outputs, labels, reduction="none")
    losses = nn.functional.binary_cross_entropy_with_logits(
        outputs, labels, reduction="none"
    )
    return losses.mean(1)
