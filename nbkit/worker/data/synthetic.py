"""Synthetic images on the device: training speed without input cost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.worker.data import Batch, EvaluationBatch, Placement

NUM_CLASSES = 1000
"""Unless the configuration says how many."""

# More than one batch, so that consecutive steps do not see the very same images; few,
# because each costs memory (154 MB for 256 images of 224 px).
_POOL_BATCHES = 2
EVALUATION_SHARE = 20


class Synthetic:
    """A few fixed random batches, taken in turn; labels are fixed with them."""

    def __init__(
        self, config: ExperimentConfig, placement: Placement, batch_size: int
    ) -> None:
        accumulation = config.gradient_accumulation_steps
        images_per_step = batch_size * placement.world_size * accumulation
        self.num_classes = config.num_classes or NUM_CLASSES
        self.steps_per_epoch = config.images_per_epoch // images_per_step
        if not self.steps_per_epoch:
            message = (
                f"images_per_epoch={config.images_per_epoch} is below the global batch "
                f"size of {images_per_step}. Use {images_per_step} or more."
            )
            raise ConfigError(message)
        self.train_images = self.steps_per_epoch * images_per_step
        self.dropped_images = config.images_per_epoch - self.train_images
        self.evaluation_images = max(1, config.images_per_epoch // EVALUATION_SHARE)
        self._placement = placement
        self._batch_size = batch_size
        self._batches_per_epoch = self.steps_per_epoch * accumulation
        device = placement.device
        generator = torch.Generator(device)
        generator.manual_seed(config.seed * 1009 + placement.rank)
        last = config.memory_format == "channels_last"
        layout = torch.channels_last if last else torch.contiguous_format
        size = config.image_size
        self._pool: list[Batch] = []
        for _ in range(_POOL_BATCHES):
            # Made in one layout and then brought into the other, so that both hold the
            # same images.
            images = torch.randn(
                batch_size, 3, size, size, generator=generator, device=device
            ).contiguous(memory_format=layout)
            labels = torch.randint(
                self.num_classes, (batch_size,), generator=generator, device=device
            )
            self._pool.append((images, labels))

    def train_batches(self, epoch: int, first_batch: int = 0) -> Iterator[Batch]:
        """Yield the pool's batches in turn."""
        start = epoch * self._batches_per_epoch
        for number in range(first_batch, self._batches_per_epoch):
            yield self._pool[(start + number) % _POOL_BATCHES]

    def evaluation_batches(self) -> Iterator[EvaluationBatch]:
        """Yield the pool's batches until the largest share of a rank is done."""
        world, rank = self._placement.world_size, self._placement.rank
        mine = self.evaluation_images // world + (rank < self.evaluation_images % world)
        largest = -(-self.evaluation_images // world)
        index = torch.arange(self._batch_size, device=self._placement.device)
        for number, first in enumerate(range(0, largest, self._batch_size)):
            images, labels = self._pool[number % _POOL_BATCHES]
            yield images, labels, index < mine - first

    def describe(self) -> dict[str, Any]:
        """Return facts about the images for the run's record."""
        return {
            "loader": "synthetic",
            "train_images": self.train_images,
            "dropped_images": self.dropped_images,
            "evaluation_images": self.evaluation_images,
        }

    def close(self) -> None:
        """Do nothing: there are no loading processes."""
