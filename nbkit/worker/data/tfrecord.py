"""The ``tfrecord`` loader: TFRecord files through a configurable pipeline.

It measures the effect of each step of an input pipeline: shards early or late,
shuffling before or after decoding, several files read in turn, decoding and batching in
one. Images, labels and crops are those of the manifest, as for every loader. Their
order is the pipeline's own: it follows from the seed, the epoch and the files.

A rank's order is worked out without reading anything before an epoch begins, so that a
resumed epoch continues with the same images and reads none again that were shown.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Container, Generator, Iterator
from itertools import chain, islice
from typing import Any, TypeAlias

import torch

from nbkit.config import ExperimentConfig
from nbkit.config.pipeline import images_of_every_rank, pipeline_steps
from nbkit.datasets.manifest import Manifest
from nbkit.datasets.samples import Samples
from nbkit.errors import ConfigError
from nbkit.worker.data import Placement, steps
from nbkit.worker.data.image_data import NO_IMAGE, ImageData, Requests, read_image
from nbkit.worker.data.images import decode_crop, naming

_CYCLE_LENGTH = 10
"""Files that ``interleave`` reads in turn, as in Dell's report on CheXNet."""

_ORDERING = ("shard", "shuffle", "read", "interleave")
"""Steps that decide which images come, and in which order."""

_SHUFFLE_BUFFER = 500
_FEWEST_BUFFERS = 10
"""The report's old pipeline shuffles within 500 of 112,120 images. Of a small set less:
a buffer that holds a large part of an epoch is filled while all ranks wait."""

Record: TypeAlias = tuple[int, bytes]
"""Place of an image in the manifest, and its file."""


class TFRecordData(ImageData):
    """One rank's part of a set of images; see `nbkit.worker.data.Data`."""

    loader = "tfrecord"

    def __init__(
        self,
        config: ExperimentConfig,
        manifest: Manifest,
        placement: Placement,
        batch_size: int,
    ) -> None:
        if manifest.kind != "tfrecord":
            message = (
                f"loader='tfrecord' reads TFRecord files, but data={config.data!r} is "
                f"of kind {manifest.kind}. Pack the data with "
                "nbkit.datasets.pack(data, folder, 'tfrecord'), or use loader='torch'."
            )
            raise ConfigError(message)
        super().__init__(config, manifest, placement, batch_size)
        self.steps = pipeline_steps(config.loader_config.pipeline)
        self.files = _in_file_order(manifest.train)
        """Places in the manifest of each file's images, from its begin to its end."""
        images = images_of_every_rank(
            self.steps, [len(f) for f in self.files], placement.world_size, config.data
        )
        needed = batch_size * config.gradient_accumulation_steps
        if images < needed:
            fitting = images * batch_size // needed
            fewer = "fewer gradient_accumulation_steps"
            remedy = f"batch_size_per_gpu={fitting} or less" if fitting else fewer
            message = (
                f"data={config.data!r} has {len(manifest.train)} training images, "
                f"{images} per rank, but a step requires {needed} per rank. Use "
                f"{remedy}, or more images."
            )
            raise ConfigError(message)
        self.steps_per_epoch = images // needed
        self.train_images = self.steps_per_epoch * self._images_per_step
        self.dropped_images = len(manifest.train) - self.train_images
        self._images_of_rank = self.train_images // placement.world_size
        self.buffer_size = max(
            1, min(_SHUFFLE_BUFFER, self._images_of_rank // _FEWEST_BUFFERS)
        )

    def train_requests(self, epoch: int, first_batch: int = 0) -> Requests:
        """Return this rank's batches of one epoch, in the order of its pipeline."""
        with contextlib.ExitStack() as opened:
            order = list(_Order(self, epoch, self._images_of_rank).run(opened))
        return _PipelineRequests(epoch, order, first_batch, self.batch_size)

    def new_batch(self) -> torch.Tensor:
        """Return memory for the pixels of a batch."""
        size = self.augmentation.size
        shape = (self.batch_size, size, size, 3)
        return torch.empty(shape, dtype=torch.uint8, pin_memory=self.pin_memory)

    def map_and_batch(
        self, images: _Images, files: Iterator[Record]
    ) -> Generator[torch.Tensor, None, None]:
        """Yield the pixels of whole batches."""
        return steps.map_and_batch(
            images.decode, files, self.batch_size, self.new_batch, self.num_workers
        )

    def _pixels(
        self, samples: Samples, requests: Requests
    ) -> Generator[torch.Tensor, None, None]:
        with contextlib.ExitStack() as opened:
            if isinstance(requests, _PipelineRequests):
                images = _Images(self, samples, requests.epoch, requests.shown_before)
                batches = _Stream(self, images, self._images_of_rank).run(opened)
                first = requests.first_batch
                yield from islice(batches, first, first + len(requests))
                return
            # In its own order, whatever the steps of training.
            images = _Images(self, samples, None, {NO_IMAGE})
            order = chain.from_iterable(request.indices for request in requests)
            batches = self.map_and_batch(images, map(images.read, order))
            opened.callback(batches.close)
            ahead = steps.prefetch(batches, self.config.loader_config.prefetch_factor)
            opened.callback(ahead.close)
            yield from ahead

    def _settings(self) -> dict[str, Any]:
        return {
            "pipeline": ",".join(self.steps),
            "threads": self.num_workers,
            "prefetch_factor": self.config.loader_config.prefetch_factor,
            "pin_memory": self.pin_memory,
            "files": len(self.files),
            "shuffle_buffer": self.buffer_size,
            "decoder": "Pillow",
        }


load = TFRecordData


class _PipelineRequests(Requests):
    """A rank's batches of one epoch, in the order of its pipeline."""

    def __init__(
        self, epoch: int, order: list[int], first_batch: int, batch_size: int
    ) -> None:
        first = first_batch * batch_size
        starts = range(first, len(order), batch_size)
        super().__init__(epoch, torch.tensor(order), starts, batch_size)
        self.first_batch = first_batch
        self.shown_before = frozenset(order[:first])


class _Order:
    """One epoch of one rank as places in the manifest; nothing is read."""

    def __init__(self, data: TFRecordData, epoch: int, most_images: int) -> None:
        self._data = data
        self._epoch = epoch
        self._most_images = most_images
        # After this step it is known which images come, and in which order.
        self._settled = max(
            place for place, step in enumerate(data.steps) if step in _ORDERING
        )

    def run(self, opened: contextlib.ExitStack) -> Iterator[Any]:
        """Return what comes out of the last step."""
        stream: Iterator[Any] = iter(())
        for place, step in enumerate(self._data.steps):
            stream = getattr(self, f"_{step}")(stream, place)
            if isinstance(stream, Generator):
                opened.callback(stream.close)
            if place == self._settled:
                # What no batch will hold is not decoded for the steps that look ahead.
                stream = islice(stream, self._most_images)
        return stream

    def _list(self, _: Iterator[Any], place: int) -> Iterator[Any]:
        return iter(self._data.files)

    def _shard(self, stream: Iterator[Any], place: int) -> Iterator[Any]:
        placement = self._data.placement
        return islice(stream, placement.rank, None, placement.world_size)

    def _shuffle(self, stream: Iterator[Any], place: int) -> Iterator[Any]:
        # The same for every rank: what is shuffled before it is shared out is one row.
        seed = f"steps/{self._data.config.seed}/{self._epoch}/{place}"
        return steps.shuffle(stream, self._data.buffer_size, random.Random(seed))

    def _read(self, stream: Iterator[Any], place: int) -> Iterator[Any]:
        return chain.from_iterable(stream)

    def _interleave(self, stream: Iterator[Any], place: int) -> Iterator[Any]:
        return steps.interleave(stream, _CYCLE_LENGTH)

    def _pass_through(self, stream: Iterator[Any], place: int) -> Iterator[Any]:
        return stream

    _map = _batch = _map_and_batch = _prefetch = _pass_through


class _Stream(_Order):
    """One epoch of one rank: files are read, images decoded, batches made."""

    def __init__(self, data: TFRecordData, images: _Images, most_images: int) -> None:
        super().__init__(data, images.epoch or 0, most_images)
        self._images = images

    def _read(self, stream: Iterator[Any], place: int) -> Iterator[Any]:
        return map(self._images.read, super()._read(stream, place))

    def _interleave(self, stream: Iterator[Any], place: int) -> Iterator[Any]:
        order = super()._interleave(stream, place)
        return steps.parallel_map(self._images.read, order, _CYCLE_LENGTH)

    def _map(self, stream: Iterator[Any], place: int) -> Iterator[Any]:
        return steps.parallel_map(self._images.decode, stream, self._data.num_workers)

    def _batch(self, stream: Iterator[Any], place: int) -> Iterator[Any]:
        return steps.batch(stream, self._data.batch_size, self._data.new_batch)

    def _map_and_batch(self, stream: Iterator[Any], place: int) -> Iterator[Any]:
        return self._data.map_and_batch(self._images, stream)

    def _prefetch(self, stream: Iterator[Any], place: int) -> Iterator[Any]:
        # Before there are batches, as many images as one has: so does the report.
        made = {"batch", "map_and_batch"} & set(self._data.steps[:place])
        ahead = self._data.config.loader_config.prefetch_factor
        return steps.prefetch(stream, ahead if made else self._data.batch_size)


class _Images:
    """What the steps do with single images; called in several threads concurrently."""

    def __init__(
        self,
        data: TFRecordData,
        samples: Samples,
        epoch: int | None,
        left_out: Container[int],
    ) -> None:
        self.epoch = epoch
        self._samples = samples
        self._augmentation = data.augmentation
        self._left_out = left_out
        size = data.augmentation.size
        self._none = torch.zeros((size, size, 3), dtype=torch.uint8)

    def read(self, index: int) -> Record:
        """Return an image's file with its place."""
        if index in self._left_out:
            return index, b""
        with naming(self._samples, index):
            return index, read_image(self._samples, index)

    def decode(self, record: Record) -> torch.Tensor:
        """Return an image's pixels (uint8, shape ``(size, size, 3)``)."""
        # By Pillow, which does not hold Python's lock: nvImageCodec does, so that
        # threads would wait for each other.
        index, data = record
        if index in self._left_out:
            return self._none
        decoding = self._samples.decoding(index)
        crop = self._augmentation.crop(decoding, self.epoch, index)
        with naming(self._samples, index):
            return decode_crop(data, decoding, crop, self._augmentation.size)


def _in_file_order(samples: Samples) -> list[list[int]]:
    """Return the images of each file, from its begin to its end."""
    files: dict[int, list[tuple[int, int]]] = {}
    for index in range(len(samples)):
        file, offset = samples.packed_at(index)
        files.setdefault(file, []).append((offset, index))
    return [[index for _, index in sorted(files[file])] for file in sorted(files)]
