"""Base of all image loaders; a loader only decodes the pixels.

Which images there are, the manifest says. Their order, their labels, which part of each
is shown, and what is padding are decided here, so that they are equal whatever the
loader. An order follows from the seed and the epoch: a resumed epoch continues with the
same batches.
"""

from __future__ import annotations

import contextlib
import os
import random
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from typing import Any, ClassVar, NamedTuple

import torch

from nbkit.config import ExperimentConfig
from nbkit.datasets.enough import no_evaluation_images, too_few_images
from nbkit.datasets.manifest import Manifest
from nbkit.datasets.samples import Samples
from nbkit.errors import ConfigError
from nbkit.telemetry.cpus import usable_cpus
from nbkit.worker.data import Batch, EvaluationBatch, Placement
from nbkit.worker.data.augmentation import Augmentation
from nbkit.worker.data.left_out import in_words
from nbkit.worker.data.normalise import DeviceCopy, Normalise

NO_IMAGE = -1
"""Index of what fills up the last batch of an evaluation."""

# The fastest published rate of one GPU, 7,951 images/s, needs 11 to 23 processors that
# decode; more than this would only take memory.
_MOST_CPUS = 32


class Request(NamedTuple):
    """One batch of one rank."""

    epoch: int | None
    """Number of the epoch; None in an evaluation."""
    indices: list[int]
    """Indices of the images in the manifest; `NO_IMAGE` for padding."""


class Requests:
    """A rank's batches of one epoch, in order, each created on request.

    Several threads may iterate over it concurrently.
    """

    def __init__(
        self, epoch: int | None, order: torch.Tensor, starts: range, batch_size: int
    ) -> None:
        self.epoch = epoch
        self._order = order
        self._starts = starts
        self._batch_size = batch_size

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Request]:
        for start in self._starts:
            indices = self._order[start : start + self._batch_size]
            yield Request(self.epoch, indices.tolist())


class ImageData(ABC):
    """One rank's part of a set of images; see `nbkit.worker.data.Data`.

    A loader is a subclass with its own `_pixels`.
    """

    loader: ClassVar[str]
    """Name in the record."""
    normalises_on_host: ClassVar[bool] = False

    def __init__(
        self,
        config: ExperimentConfig,
        manifest: Manifest,
        placement: Placement,
        batch_size: int,
    ) -> None:
        self.config = config
        self.manifest = manifest
        self.placement = placement
        self.batch_size = batch_size
        self.augmentation = Augmentation.of(config)
        self.num_classes = len(manifest.classes)
        self.evaluation_images = len(manifest.evaluation)
        self._check_classes_and_evaluation()
        images = len(manifest.train)
        self.steps_per_epoch = images // self._images_per_step
        ranks = placement.world_size
        if problem := too_few_images(config, images, batch_size, ranks):
            raise ConfigError(problem)
        self.train_images = self.steps_per_epoch * self._images_per_step
        self.dropped_images = images - self.train_images
        self.num_workers = cpus_for_loading(
            config, usable_cpus(), placement.cpus_shared_by
        )
        pin_memory = config.loader_config.pin_memory
        self.pin_memory = (
            placement.device.type == "cuda" if pin_memory is None else pin_memory
        )
        self._streams: list[Generator[Any, None, None]] = []
        self._to_device = DeviceCopy(placement.device)
        host = torch.device("cpu")
        self._normalise = Normalise(
            config, host if self.normalises_on_host else placement.device
        )

    # What each loader has itself

    @abstractmethod
    def _pixels(
        self, samples: Samples, requests: Requests
    ) -> Generator[torch.Tensor, None, None]:
        """Yield the pixels of every request, in order."""
        # The generator is closed when its epoch ends, is left early, or is no longer of
        # interest; only one of the training lives at a time. One of an evaluation may
        # live beside it.

    def _settings(self) -> dict[str, Any]:
        """Return what the record keeps of how this loader reads."""
        return {}

    def close(self) -> None:
        """Stop loading; a second call does nothing."""
        while self._streams:
            self._streams.pop().close()
        self.manifest.train.close()
        self.manifest.evaluation.close()

    def _finish(
        self, pixels: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor
    ) -> EvaluationBatch:
        """Return a batch on the device, from what a loader and the manifest say."""
        pixels, labels, mask = self._to_device(pixels, labels, mask)
        return self._normalise(pixels), labels, mask

    # What all have in common

    def train_batches(self, epoch: int, first_batch: int = 0) -> Iterator[Batch]:
        """Yield this rank's batches of one epoch, from ``first_batch`` on."""
        # Only the newest iterator may be used: one epoch is loaded at a time. Nothing
        # is done before the first batch is asked for, not even what an epoch begins
        # with: the training then sees that time as waiting for data.
        before = tuple(self._streams)
        return self._track(self._train_stream(epoch, first_batch, before))

    def evaluation_batches(self) -> Iterator[EvaluationBatch]:
        """Yield this rank's part of the evaluation images; the last are padded."""
        requests = self.evaluation_requests()
        return self._track(self._stream(self.manifest.evaluation, requests))

    def train_requests(self, epoch: int, first_batch: int = 0) -> Requests:
        """Return this rank's batches of one epoch; no two ranks share an image."""
        seed = random.Random(f"order/{self.config.seed}/{epoch}").getrandbits(63)
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self.manifest.train), generator=generator)
        stride = self.batch_size * self.placement.world_size
        first = first_batch * stride + self.placement.rank * self.batch_size
        starts = range(first, self.train_images, stride)
        return Requests(epoch, order, starts, self.batch_size)

    def evaluation_requests(self) -> Requests:
        """Return this rank's share of the evaluation, each image once."""
        # Every rank has as many batches as the others.
        stride = self.batch_size * self.placement.world_size
        order = torch.arange(self.evaluation_images)
        padding = -self.evaluation_images % stride
        order = torch.nn.functional.pad(order, (0, padding), value=NO_IMAGE)
        starts = range(self.placement.rank * self.batch_size, len(order), stride)
        return Requests(None, order, starts, self.batch_size)

    def describe(self) -> dict[str, Any]:
        """Return facts about the images and the loader for the run's record."""
        return {
            "loader": self.loader,
            "num_classes": self.num_classes,
            "train_images": self.train_images,
            "dropped_images": self.dropped_images,
            "evaluation_images": self.evaluation_images,
            **self._settings(),
        }

    @property
    def _images_per_step(self) -> int:
        accumulation = self.config.gradient_accumulation_steps
        return self.batch_size * self.placement.world_size * accumulation

    def _track(self, stream: Generator[Any, None, None]) -> Iterator[Any]:
        self._streams.append(stream)
        return stream

    def _train_stream(
        self,
        epoch: int,
        first_batch: int,
        before: tuple[Generator[Any, None, None], ...],
    ) -> Generator[Batch, None, None]:
        for stream in reversed(before):
            stream.close()
        self._streams = [stream for stream in self._streams if stream not in before]
        requests = self.train_requests(epoch, first_batch)
        with contextlib.closing(self._stream(self.manifest.train, requests)) as stream:
            for images, labels, _ in stream:
                yield images, labels

    def _stream(
        self, samples: Samples, requests: Requests
    ) -> Generator[EvaluationBatch, None, None]:
        with contextlib.closing(self._pixels(samples, requests)) as stream:
            # Strictly: a loader that yields too few must not shorten an epoch.
            for request, pixels in zip(requests, stream, strict=True):
                labels = self._labels(samples, request.indices)
                mask = torch.tensor([index != NO_IMAGE for index in request.indices])
                yield self._finish(pixels, labels, mask)

    def _labels(self, samples: Samples, indices: list[int]) -> torch.Tensor:
        if self.manifest.is_multi_label:
            none, dtype = (0,) * self.num_classes, torch.float32
        else:
            none, dtype = 0, torch.int64
        labels = [
            none if index == NO_IMAGE else samples.label(index) for index in indices
        ]
        return torch.tensor(labels, dtype=dtype)

    def _check_classes_and_evaluation(self) -> None:
        config, classes = self.config, self.num_classes
        outputs = classes if config.num_classes is None else config.num_classes
        if self.manifest.is_multi_label and outputs != classes:
            message = (
                f"num_classes={outputs}, but data={config.data!r} has {classes} "
                f"labels. Use {classes}, or None."
            )
            raise ConfigError(message)
        if outputs < classes:
            message = (
                f"num_classes={outputs} is below the {classes} classes in "
                f"data={config.data!r}. Use {classes} or more, or None."
            )
            raise ConfigError(message)
        if config.evaluation_period_epochs is None or self.evaluation_images:
            return
        message = no_evaluation_images(config)
        if images := [i for i in self.manifest.unreadable if i.split == "evaluation"]:
            message = (
                f"evaluation_period_epochs={config.evaluation_period_epochs}, but "
                f"data={config.data!r} has no readable evaluation image: "
                f"{in_words(images)}. Fix the images, or set "
                "evaluation_period_epochs=None."
            )
        raise ConfigError(message)


def read_image(samples: Samples, index: int) -> bytes:
    """Return an image's file, if it still has the size that was checked."""
    # Decoders show grey where a file has been cut off.
    data = samples.read(index)
    expected = samples.size_bytes(index)
    if len(data) != expected:
        message = f"size changed from {expected:,} to {len(data):,} bytes"
        raise ValueError(message)
    return data


def cpus_for_loading(
    config: ExperimentConfig,
    cpus: float,
    shared_by: int | None,
    processors: int | None = None,
) -> int:
    """Return the CPUs for loading of a rank: its share minus one for training."""
    num_workers = config.loader_config.num_workers
    if num_workers is not None:
        return num_workers
    own = processors or len(os.sched_getaffinity(0))
    # Ranks bound to different CPUs share only a quota.
    share = min(own / (shared_by or config.gpus), cpus)
    if cpus < own:
        share = min(share, cpus / config.gpus)
    return min(_MOST_CPUS, max(1, int(share) - 1))
