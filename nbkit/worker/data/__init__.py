"""One interface for every source of images: `load` returns a `Data`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import torch

from nbkit import registry
from nbkit.config import ExperimentConfig
from nbkit.datasets.manifest import Manifest
from nbkit.errors import RunError

__all__ = ["Batch", "Data", "EvaluationBatch", "Placement", "load", "next_batch"]

Batch: TypeAlias = tuple[torch.Tensor, torch.Tensor]
"""Images (float, shape (N, 3, H, W), normalised, in the configured layout) and labels,
both on the device. Labels are int64 of shape (N,) or, if an image can have several
labels, float of shape (N, labels), each 0 or 1."""
EvaluationBatch: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""As `Batch`, with a mask (bool, shape (N,)) that is False for padding."""


@dataclass(frozen=True)
class Placement:
    """Rank and device of the batches."""

    device: torch.device
    rank: int
    world_size: int
    cpus_shared_by: int | None = None
    """Number of ranks that share this rank's CPUs; None for all of its host."""


class Data(Protocol):
    """The images of one rank."""

    num_classes: int
    train_images: int
    """Images that all ranks together use per epoch."""
    dropped_images: int
    """Images dropped per epoch, too few for another global batch."""
    steps_per_epoch: int
    """Optimizer steps of one epoch."""
    evaluation_images: int
    """Images of one evaluation; 0 if there are none."""

    def train_batches(self, epoch: int, first_batch: int = 0) -> Iterator[Batch]:
        """Yield this rank's batches of one epoch.

        Parameters
        ----------
        epoch
            Number of the epoch, counted from 0.
        first_batch
            Number of batches to skip; the following batches stay the same.
        """
        ...

    def evaluation_batches(self) -> Iterator[EvaluationBatch]:
        """Yield this rank's evaluation batches; each image is on exactly one rank.

        All ranks yield the same number of batches; the last ones may be all padding.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Return facts about the images and the loader for the run's record."""
        ...

    def close(self) -> None:
        """Stop the loading processes; a second call does nothing."""
        ...


def load(
    config: ExperimentConfig,
    manifest: Manifest | None,
    placement: Placement,
    batch_size: int,
) -> Data:
    """Return this rank's images.

    A loader is registered as a function with these parameters. It must use the images
    of the manifest, and neither list nor skip images itself.

    Parameters
    ----------
    config
        ``data``, ``loader`` and the image settings apply.
    manifest
        The images; None for synthetic ones.
    placement
        Device and rank.
    batch_size
        Images per batch and rank.

    Raises
    ------
    ConfigError
        If the data cannot be used as configured.
    """
    if manifest is None:
        from nbkit.worker.data import synthetic

        return synthetic.Synthetic(config, placement, batch_size)
    loader = registry.resolve("loaders", config.loader)
    return loader(config, manifest, placement, batch_size)


def next_batch(stream: Iterator[Batch], config: ExperimentConfig, step: int) -> Batch:
    """Return the next batch of an epoch that is not over.

    Raises
    ------
    RunError
        If the loader has no more batches.
    """
    batch = next(stream, None)
    if batch is None:
        parts = config.gradient_accumulation_steps
        message = (
            f"loader={config.loader!r} ran out of batches at step {step}, before the "
            f"end of the epoch. train_batches() must yield {parts} * "
            "steps_per_epoch - first_batch batches (gradient_accumulation_steps="
            f"{parts})."
        )
        raise RunError(message)
    return batch
