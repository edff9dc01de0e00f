"""How good the model is: every evaluation image once, over all ranks.

Where an image has one class this is the top-1 accuracy; where it can have several
labels at once, the area under the ROC curve (AUROC) of each label.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn

from nbkit.worker import losses
from nbkit.worker.data import Data
from nbkit.worker.precision import Precision

__all__ = ["Score", "area_under_roc", "evaluate"]


class Score(Protocol):
    """Takes in batches of one rank, and sums up over all of them."""

    def add(
        self, outputs: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor
    ) -> None:
        """Take in logits (float, shape ``(n, classes)``), labels and the mask."""
        ...

    def result(self) -> dict[str, Any]:
        """Return what is written down; called by all ranks."""
        ...


def evaluate(
    model: nn.Module,
    batches: Data,
    precision: Precision,
    world_size: int,
    labels: Sequence[str] | None,
    is_over: Callable[[], bool],
) -> dict[str, Any] | None:
    """Return how the model does on every evaluation image; called by all ranks.

    Parameters
    ----------
    model
        Left in evaluation mode.
    batches
        The images.
    precision
        Of the forward pass.
    world_size
        Ranks.
    labels
        Names of the labels that an image can have at once; None if it has one class.
    is_over
        Asked behind every batch whether to stop, and must say the same to all ranks.

    Returns
    -------
    dict or None
        ``images``, ``loss`` and, with one class an image, ``top1_accuracy`` (0 to 1)
        and ``correct``; with several labels ``auroc``, by label and None for a label
        that not some images have and others have not, and their ``mean_auroc``.
        ``duration_seconds``. None if it was stopped: every rank has as many batches, so
        that all leave at the same one.
    """
    began = time.perf_counter()
    if world_size > 1:
        # Running statistics differ by the last step: everybody takes rank 0's.
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)
    model.eval()
    device = next(model.parameters()).device
    score: Score = (
        _Accuracy(device, world_size)
        if labels is None
        else _LabelRanking(labels, world_size)
    )
    with torch.inference_mode(), precision.autocast():
        for images, targets, mask in batches.evaluation_batches():
            score.add(model(images).float(), targets, mask)
            if is_over():
                return None
    return {**score.result(), "duration_seconds": time.perf_counter() - began}


def area_under_roc(scores: torch.Tensor, labels: torch.Tensor) -> float | None:
    """Return the area under the ROC curve of one label.

    That is how often an image with the label scores higher than one without; equal
    scores count half.

    Parameters
    ----------
    scores
        Float, shape ``(n,)``: higher for images that seem to have the label.
    labels
        Shape ``(n,)``: 1 for images that have it, else 0.

    Returns
    -------
    float or None
        From 0 to 1; None if all images have the label or none, or if a score is not a
        number.

    References
    ----------
    Mann and Whitney (1947), https://doi.org/10.1214/aoms/1177730491
    """
    has_label = labels > 0.5
    positives = int(has_label.sum())
    negatives = len(labels) - positives
    if not positives or not negatives or bool(scores.isnan().any()):
        return None
    _, place, count = scores.unique(return_inverse=True, return_counts=True)
    # Ranks from 1 on; equal scores share the mean of theirs.
    last = count.cumsum(0)
    ranks = (last - (count - 1) / 2.0).double()[place]
    above = ranks[has_label].sum().item() - positives * (positives + 1) / 2
    return above / (positives * negatives)


class _Accuracy:
    """Top-1 accuracy: sums on the device, without waiting for it."""

    def __init__(self, device: torch.device, world_size: int) -> None:
        self._world_size = world_size
        self._sums = torch.zeros(3, dtype=torch.float64, device=device)

    def add(
        self, outputs: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor
    ) -> None:
        correct = (outputs.argmax(1) == labels) & mask
        loss = losses.evaluation_losses(outputs, labels) * mask
        self._sums += torch.stack([correct.sum(), mask.sum(), loss.sum()])

    def result(self) -> dict[str, Any]:
        if self._world_size > 1:
            dist.all_reduce(self._sums)
        correct, images, loss = self._sums.tolist()
        return {
            "top1_accuracy": correct / images,
            "correct": int(correct),
            "images": int(images),
            "loss": loss / images,
        }


class _LabelRanking:
    """AUROC of every label: the scores of all images are kept and brought together."""

    def __init__(self, labels: Sequence[str], world_size: int) -> None:
        self._labels = labels
        self._world_size = world_size
        self._outputs: list[torch.Tensor] = []
        self._targets: list[torch.Tensor] = []
        self._masks: list[torch.Tensor] = []

    def add(
        self, outputs: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor
    ) -> None:
        self._outputs.append(outputs)
        self._targets.append(labels)
        self._masks.append(mask)

    def result(self) -> dict[str, Any]:
        present = self._from_all_ranks(torch.cat(self._masks))
        outputs = self._from_all_ranks(torch.cat(self._outputs))[present]
        targets = self._from_all_ranks(torch.cat(self._targets))[present]
        by_label = {
            name: area_under_roc(outputs[:, number], targets[:, number])
            for number, name in enumerate(self._labels)
        }
        known = [area for area in by_label.values() if area is not None]
        loss = losses.evaluation_losses(outputs, targets).double().mean()
        return {
            "mean_auroc": sum(known) / len(known) if known else None,
            "auroc": by_label,
            "images": len(outputs),
            "loss": loss.item(),
        }

    def _from_all_ranks(self, own: torch.Tensor) -> torch.Tensor:
        """Return every rank's rows, on the host; each has as many, padding included."""
        if self._world_size == 1:
            return own.cpu()
        gathered = [torch.empty_like(own) for _ in range(self._world_size)]
        dist.all_gather(gathered, own)
        return torch.cat(gathered).cpu()
