"""Evaluation of the model: every evaluation image once, over all ranks.

Where an image has one class this is the top-1 accuracy; where it can have several
labels, the area under the ROC curve (AUROC) of each label. The prediction
for each image is in the run's ``predictions.csv``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from nbkit import clock
from nbkit.datasets.manifest import Manifest
from nbkit.store.predictions import (
    ClassPredictions,
    LabelPredictions,
    Predictions,
    write_predictions,
)
from nbkit.worker import losses
from nbkit.worker.data import Data
from nbkit.worker.precision import Precision
from nbkit.worker.rank import Rank, say


def evaluate(
    model: nn.Module,
    batches: Data,
    precision: Precision,
    rank: Rank,
    manifest: Manifest | None,
    is_over: Callable[[], bool],
) -> dict[str, Any] | None:
    """Return the scores of the model on all evaluation images; called by all ranks."""
    began = time.perf_counter()
    if rank.world_size > 1:
        # Running statistics differ by the last step: all ranks take rank 0's.
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)
    model.eval()
    device = next(model.parameters()).device
    score = (
        _LabelRanking(manifest.classes, rank.world_size)
        if manifest is not None and manifest.is_multi_label
        else _Accuracy(device, rank.world_size)
    )
    with torch.inference_mode(), precision.autocast():
        for images, targets, mask in batches.evaluation_batches():
            score.add(model(images).float(), targets, mask)
            if is_over():
                return None
    # Its end as a moment too: writing the predictions down is not part of it.
    result = {
        **score.result(),
        "duration_seconds": time.perf_counter() - began,
        "t": clock.now(),
    }
    if manifest is not None:
        _keep(score.predictions(manifest, rank), rank)
    return result


def area_under_roc(scores: torch.Tensor, labels: torch.Tensor) -> float | None:
    """Return the area under the ROC curve of one label."""
    # That is how often an image with the label scores higher than one without; equal
    # scores count half.
    # The value of `nbkit.statistics.auroc.area_under_roc`, without its interval: that
    # one is for those who have no torch, and takes 5 times as long (0.10 s for a label
    # of 25,596 images, on a CPU), which every evaluation of a run would wait for.
    # Mann and Whitney (1947), https://doi.org/10.1214/aoms/1177730491
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


def _keep(predictions: Predictions | None, rank: Rank) -> None:
    if rank.rank != 0:
        return
    if predictions is not None:
        write_predictions(rank.paths.predictions, predictions)
        return
    # A plug-in's loader may have its own order.
    say(
        "evaluation: labels from the loader differ from those of the manifest, or are "
        f"in another order, so {rank.paths.predictions.name} is not written"
    )


class _Accuracy:
    """Top-1 accuracy: sums on the device, without waiting for it."""

    def __init__(self, device: torch.device, world_size: int) -> None:
        self._world_size = world_size
        self._sums = torch.zeros(3, dtype=torch.float64, device=device)
        self._classes: list[torch.Tensor] = []
        """Of each batch: the predicted class, the image's own and the mask."""
        self._scores: list[torch.Tensor] = []

    def add(
        self, outputs: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor
    ) -> None:
        # Of NaN, argmax makes class 0.
        is_known = ~outputs.isnan().any(1)
        predicted = outputs.argmax(1).where(is_known, outputs.shape[1])
        correct = (predicted == labels) & mask
        # A model may make NaN of padding, and NaN times zero is NaN.
        loss = torch.where(mask, losses.evaluation_losses(outputs, labels), 0.0)
        self._sums += torch.stack([correct.sum(), mask.sum(), loss.sum()])
        self._classes.append(torch.stack([predicted, labels, mask.long()], 1))
        self._scores.append(outputs.softmax(1).amax(1))

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

    def predictions(self, manifest: Manifest, rank: Rank) -> Predictions | None:
        # None where the labels that came are not the manifest's, in its order. Loaders
        # hand over no names: images of equal labels that have changed places are not
        # noticed.
        classes = _from_all_ranks(self._classes, self._world_size)
        scores = _from_all_ranks(self._scores, self._world_size)
        if rank.rank != 0:
            return None
        present = classes[:, 2] > 0
        scores = scores[present]
        predicted, labels, _ = classes[present].T.tolist()
        files, expected = _names_and_labels(manifest)
        if labels != expected:
            return None
        names: list[str] = [*manifest.classes]
        return ClassPredictions(
            files,
            [names[number] for number in labels],
            [
                names[number] if number < len(names) else f"output {number}"
                for number in predicted
            ],
            scores.tolist(),
        )


class _LabelRanking:
    """AUROC of every label: the scores of all images are kept and brought together."""

    def __init__(self, labels: Sequence[str], world_size: int) -> None:
        self._labels = labels
        self._world_size = world_size
        self._batches: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self._outputs = self._targets = torch.empty(0)

    def add(
        self, outputs: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor
    ) -> None:
        self._batches.append((outputs, labels, mask))

    def result(self) -> dict[str, Any]:
        outputs, targets, present = (
            _from_all_ranks(part, self._world_size)
            for part in zip(*self._batches, strict=True)
        )
        outputs, targets = outputs[present], targets[present]
        self._outputs, self._targets = outputs, targets
        by_label = {
            name: area_under_roc(outputs[:, number], targets[:, number])
            for number, name in enumerate(self._labels)
        }
        areas = [area for area in by_label.values() if area is not None]
        loss = losses.evaluation_losses(outputs, targets).double().mean()
        return {
            "mean_auroc": sum(areas) / len(areas) if areas else None,
            "auroc": by_label,
            "images": len(outputs),
            "loss": loss.item(),
        }

    def predictions(self, manifest: Manifest, rank: Rank) -> Predictions | None:
        if rank.rank != 0:
            return None
        targets = self._targets.int().tolist()
        files, expected = _names_and_labels(manifest)
        if list(map(tuple, targets)) != expected:
            return None
        return LabelPredictions(
            files,
            dict(zip(self._labels, self._targets.int().T.tolist(), strict=True)),
            dict(zip(self._labels, self._outputs.T.tolist(), strict=True)),
        )


def _names_and_labels(manifest: Manifest) -> tuple[list[str], list[Any]]:
    images = manifest.evaluation
    numbers = range(len(images))
    return [*map(images.name, numbers)], [*map(images.label, numbers)]


def _from_all_ranks(batches: Sequence[torch.Tensor], world_size: int) -> torch.Tensor:
    """Return every rank's rows, on the host, in the order of the evaluation."""
    # The ranks take its batches in turn; each has as many, padding included.
    # A loader's last batch may be shorter; what is filled in has a mask of 0.
    own = pad_sequence([*batches], batch_first=True)
    gathered = [own]
    if world_size > 1:
        # With a single batch, other ranks cannot infer its length.
        longest = torch.tensor(own.shape[1], device=own.device)
        dist.all_reduce(longest, dist.ReduceOp.MAX)
        missing = int(longest) - own.shape[1]
        filling = own.new_zeros(len(own), missing, *own.shape[2:])
        own = torch.cat([own, filling], 1)
        gathered = [torch.empty_like(own) for _ in range(world_size)]
        dist.all_gather(gathered, own.contiguous())
    return torch.stack(gathered, 1).flatten(0, 2).cpu()
