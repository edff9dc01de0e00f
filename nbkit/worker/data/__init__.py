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
both on the device. Labels are int64 of shape (N,); or, where an image can have several
labels, 0 or 1 for each, float, of shape (N, labels)."""
EvaluationBatch: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""As `Batch`, with a mask (bool, shape (N,)) that is False for padding."""


@dataclass(frozen=True)
class Placement:
    """Where a rank's batches go."""

    device: torch.device
    rank: int
    world_size: int
    cpus_shared_by: int | None = None
    """Ranks that share the CPUs that this one is bound to; None is all of its host."""


class Data(Protocol):
    """The images of one rank."""

    num_classes: int
    train_images: int
    """Images that all ranks together use in one epoch."""
    dropped_images: int
    """Images left over each epoch, too few for another global batch."""
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
            Batches to leave out; those that follow are the same as without.
        """
        ...

    def evaluation_batches(self) -> Iterator[EvaluationBatch]:
        """Yield this rank's part of the evaluation images; over all ranks each once.

        Every rank yields as many batches as the others, the last ones all padding if
        need be.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """Return what the record keeps of the images and of how they are read."""
        ...

    def close(self) -> None:
        """End loading processes; a second call does nothing."""
        ...


def load(
    config: ExperimentConfig,
    manifest: Manifest | None,
    placement: Placement,
    batch_size: int,
) -> Data:
    """Return this rank's images.

    A loader is registered as a function with these parameters. It follows the manifest,
    and neither lists nor leaves out anything by itself.

    Parameters
    ----------
    config
        ``data``, ``loader`` and everything about images matter.
    manifest
        The images; None for synthetic ones.
    placement
        Device and rank.
    batch_size
        Images of one batch of one rank.

    Raises
    ------
    ConfigError
        If the data cannot be used as configured.
    """
    if manifest is None:
        from nbkit.worker.data import synthetic

        return synthetic.load(config, placement, batch_size)
    loader = registry.resolve("loaders", config.loader)
    return loader(config, manifest, placement, batch_size)


def next_batch(stream: Iterator[Batch], config: ExperimentConfig, step: int) -> Batch:
    """Return the next batch of an epoch that is not over.

    Raises
    ------
    RunError
        If the loader has no more.
    """
    batch = next(stream, None)
    if batch is None:
        parts = config.gradient_accumulation_steps
        message = (
            f"loader={config.loader!r} ran out of batches at step {step}, before the "
            "end of the epoch. train_batches() must yield steps_per_epoch * "
            f"gradient_accumulation_steps={parts} - first_batch batches."
        )
        raise RunError(message)
    return batch
