"""The ``torch`` loader: image folders through a plain DataLoader.

The loading processes decode, crop and hand over whole batches of bytes. Normalisation
happens on the device, so that a quarter of the data travels. What an image looks like
depends on the seed, the epoch and the file alone: neither on the number of loading
processes nor on that of ranks, and a resumed epoch goes on with the same batches.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Generator, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import torch
from PIL import UnidentifiedImageError
from torch.utils.data import DataLoader, Dataset, Sampler

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.telemetry.cpus import usable_cpus
from nbkit.worker.data import Batch, EvaluationBatch, Placement
from nbkit.worker.data.files import ImageFiles, ImageFolder
from nbkit.worker.data.images import center_crop, random_crop

__all__ = ["FolderData", "load"]

# Mean and deviation of ImageNet's pixels, for values from 0 to 255:
# https://docs.pytorch.org/vision/stable/models.html
_MEAN = (0.485 * 255, 0.456 * 255, 0.406 * 255)
_DEVIATION = (0.229 * 255, 0.224 * 255, 0.225 * 255)

# The fastest published rate of one GPU, 7,951 images/s, needs 11 to 23 processors of
# this kind of decoding; more than this would only take memory.
_MOST_WORKERS = 32

_NO_IMAGE = -1
"""Index, and label, of what fills up a last batch."""

_STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}

Request: TypeAlias = tuple[int | None, list[int]]
"""A batch to load: its epoch (None: evaluation) and the indices of its files."""


class FolderData:
    """One rank's part of an image folder; see `nbkit.worker.data.Data`."""

    def __init__(
        self, config: ExperimentConfig, placement: Placement, batch_size: int
    ) -> None:
        self._folder = ImageFolder.read(Path(config.data).expanduser())
        self._config = config
        self._placement = placement
        self._batch_size = batch_size
        self._num_workers = _num_workers(config, usable_cpus())
        self._requests = _Requests()
        self._loader: DataLoader[Any] | None = None
        self._streams: list[Generator[Any, None, None]] = []
        self._normalise = _Normalise(config, placement.device)

        self.num_classes = len(self._folder.classes)
        evaluation = self._folder.evaluation
        self.evaluation_images = len(evaluation) if evaluation else 0
        self._check_classes_and_evaluation()
        images = len(self._folder.train)
        self.steps_per_epoch = images // self._images_per_step
        if not self.steps_per_epoch:
            raise ConfigError(self._too_few_images(images))
        self.train_images = self.steps_per_epoch * self._images_per_step
        self.dropped_images = images - self.train_images

    @cached_property
    def fingerprint(self) -> dict[str, Any]:
        """What was read; asked for by one rank, because it touches every file."""
        return self._folder.fingerprint()

    def train_batches(self, epoch: int, first_batch: int = 0) -> Iterator[Batch]:
        """Yield this rank's batches of one epoch, from ``first_batch`` on.

        Only the newest iterator may be used: the loading processes serve one at a time
        and stay for the next epoch.
        """
        if self._loader is None:
            dataset = _Batches(self._folder.train, self._config)
            self._loader = self._new_loader(dataset, self._requests, persistent=True)
        self._end_streams()
        self._requests.pending = self._train_requests(epoch, first_batch)
        return self._stream(self._loader, self._normalise)

    def evaluation_batches(self) -> Iterator[EvaluationBatch]:
        """Yield this rank's part of the evaluation images; the last are padded."""
        if not self._folder.evaluation:
            return iter(())
        requests = _Requests()
        requests.pending = self._evaluation_requests()
        dataset = _Batches(self._folder.evaluation, self._config)
        loader = self._new_loader(dataset, requests, persistent=False)
        return self._stream(loader, self._normalise_and_mask)

    def describe(self) -> dict[str, Any]:
        """Return what the record keeps beside the fingerprint."""
        return {
            "loader": "torch",
            "num_classes": self.num_classes,
            "train_images": self.train_images,
            "dropped_images": self.dropped_images,
            "evaluation_images": self.evaluation_images,
            "num_workers": self._num_workers,
            "prefetch_factor": self._config.loader_config.prefetch_factor,
            "pin_memory": self._pin_memory,
        }

    def close(self) -> None:
        """End the loading processes; a second call does nothing."""
        # A DataLoader ends its processes when nobody refers to its iterator any more.
        self._end_streams()
        self._loader = None

    @property
    def _images_per_step(self) -> int:
        accumulation = self._config.gradient_accumulation_steps
        return self._batch_size * self._placement.world_size * accumulation

    @property
    def _pin_memory(self) -> bool:
        asked = self._config.loader_config.pin_memory
        return self._placement.device.type == "cuda" if asked is None else asked

    def _train_requests(self, epoch: int, first_batch: int) -> Iterator[Request]:
        seed = random.Random(f"order/{self._config.seed}/{epoch}").getrandbits(63)
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self._folder.train), generator=generator)
        world_size, rank = self._placement.world_size, self._placement.rank
        batches = self.steps_per_epoch * self._config.gradient_accumulation_steps
        for number in range(first_batch, batches):
            start = (number * world_size + rank) * self._batch_size
            yield epoch, order[start : start + self._batch_size].tolist()

    def _evaluation_requests(self) -> Iterator[Request]:
        stride = self._batch_size * self._placement.world_size
        offset = self._placement.rank * self._batch_size
        for start in range(0, self.evaluation_images, stride):
            indices = range(start + offset, start + offset + self._batch_size)
            last = self.evaluation_images - 1
            yield None, [index if index <= last else _NO_IMAGE for index in indices]

    def _new_loader(
        self, dataset: _Batches, requests: _Requests, *, persistent: bool
    ) -> DataLoader[Any]:
        settings = self._config.loader_config
        processes = self._num_workers > 0
        return DataLoader(
            dataset,
            batch_size=None,  # the dataset makes whole batches
            sampler=requests,
            num_workers=self._num_workers,
            prefetch_factor=settings.prefetch_factor if processes else None,
            persistent_workers=persistent and processes,
            pin_memory=self._pin_memory,
            worker_init_fn=_leave_signals_to_the_rank,
            # Without one of its own it would draw from the generator of the training,
            # and a resumed run would go on with other random numbers.
            generator=torch.Generator(),
        )

    def _stream(self, loader: DataLoader[Any], finish: Any) -> Iterator[Any]:
        stream = _batches(loader, finish)
        self._streams.append(stream)
        return stream

    def _end_streams(self) -> None:
        while self._streams:
            self._streams.pop().close()

    def _normalise_and_mask(
        self, images: torch.Tensor, labels: torch.Tensor
    ) -> EvaluationBatch:
        images, labels = self._normalise(images, labels)
        return images, labels.clamp(min=0), labels != _NO_IMAGE

    def _check_classes_and_evaluation(self) -> None:
        config = self._config
        if config.num_classes is not None and config.num_classes < self.num_classes:
            message = (
                f"num_classes={config.num_classes} is below the {self.num_classes} "
                f"classes in data={config.data!r}; use {self.num_classes} or more, or "
                "None."
            )
            raise ConfigError(message)
        if config.evaluation_period_epochs is not None and not self.evaluation_images:
            message = (
                f"evaluation_period_epochs={config.evaluation_period_epochs}, but "
                f"data={config.data!r} has no evaluation images; lay it out as "
                "train/<class>/ and val/<class>/, or set evaluation_period_epochs=None."
            )
            raise ConfigError(message)

    def _too_few_images(self, images: int) -> str:
        accumulation = self._config.gradient_accumulation_steps
        ranks = self._placement.world_size
        fitting = images // (ranks * accumulation)
        remedy = (
            f"batch_size_per_gpu={fitting} or less"
            if fitting
            else "fewer GPUs, fewer accumulation steps"
        )
        return (
            f"data={self._config.data!r} has {images} training images, but one global "
            f"batch needs {self._images_per_step} ({self._batch_size} images x {ranks} "
            f"ranks x {accumulation} accumulation steps); use {remedy} or more images."
        )


def load(config: ExperimentConfig, placement: Placement, batch_size: int) -> FolderData:
    """Return one rank's part of an image folder; see `nbkit.worker.data.load`."""
    return FolderData(config, placement, batch_size)


class _Requests(Sampler[Request]):
    """What the loading processes are asked for next."""

    def __init__(self) -> None:
        self.pending: Iterable[Request] = ()

    def __iter__(self) -> Iterator[Request]:
        return iter(self.pending)


class _Batches(Dataset[Any]):
    """Whole batches by request; this runs in the loading processes."""

    def __init__(self, files: ImageFiles, config: ExperimentConfig) -> None:
        self._files = files
        self._seed = config.seed
        self._size = config.image_size
        self._area = (config.crop_area_min, config.crop_area_max)

    def __getitem__(self, request: Request) -> tuple[torch.Tensor, torch.Tensor] | str:
        """Return images (uint8, shape ``(n, size, size, 3)``) and labels, or an error.

        An error comes as its text: raised here, it would reach the training process
        wrapped in a traceback of this one.
        """
        epoch, indices = request
        images = torch.zeros(
            (len(indices), self._size, self._size, 3), dtype=torch.uint8
        )
        labels = torch.full((len(indices),), _NO_IMAGE)
        for place, index in enumerate(indices):
            if index == _NO_IMAGE:
                continue
            try:
                image = self._image(epoch, index)
            except Exception as error:  # noqa: BLE001 - decoders raise many kinds
                return self._unreadable(index, error)
            images[place] = image
            labels[place] = self._files.label(index)
        return images, labels

    def _image(self, epoch: int | None, index: int) -> torch.Tensor:
        data = self._files.path(index).read_bytes()
        if epoch is None:
            return center_crop(data, self._size)
        generator = random.Random(f"image/{self._seed}/{epoch}/{index}")
        return random_crop(data, self._size, self._area, generator)

    def _unreadable(self, index: int, error: Exception) -> str:
        if isinstance(error, UnidentifiedImageError):
            said = "not a format that Pillow knows"
        else:
            said = (str(error) or type(error).__name__).splitlines()[0]
        return (
            f"{self._files.path(index)} cannot be read as an image ({said}); mend the "
            "file or remove it from the data."
        )


class _Normalise:
    """Bytes on the host to normalised images on the device."""

    def __init__(self, config: ExperimentConfig, device: torch.device) -> None:
        self._device = device
        self._channels_last = config.memory_format == "channels_last"
        shape = (1, 3, 1, 1)
        self._mean = torch.tensor(_MEAN, device=device).view(shape)
        self._factor = 1 / torch.tensor(_DEVIATION, device=device).view(shape)
        # Copies run beside the computation of the step before.
        self._copies = torch.cuda.Stream(device) if device.type == "cuda" else None

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> Batch:
        images, labels = self._to_device(images, labels)
        # As it is, a batch of (n, height, width, 3) bytes is in channels_last order.
        images = images.permute(0, 3, 1, 2)
        if not self._channels_last:
            images = images.contiguous()
        return (images - self._mean).mul_(self._factor), labels

    def _to_device(self, images: torch.Tensor, labels: torch.Tensor) -> Batch:
        if self._copies is None:
            return images, labels
        with torch.cuda.stream(self._copies):
            images = images.to(self._device, non_blocking=True)
            labels = labels.to(self._device, non_blocking=True)
        current = torch.cuda.current_stream(self._device)
        current.wait_stream(self._copies)
        for tensor in (images, labels):
            # Their memory must not be used again before the computation is done.
            tensor.record_stream(current)
        return images, labels


def _batches(loader: DataLoader[Any], finish: Any) -> Generator[Any, None, None]:
    with _signals_held():
        iterator = iter(loader)
    for loaded in iterator:
        if isinstance(loaded, str):
            raise ConfigError(loaded)
        yield finish(*loaded)


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Hold signals back while processes are started, which begin life that way."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _leave_signals_to_the_rank(worker: int) -> None:
    """Ignore what is sent to all processes of a run, as torchrun and Slurm do.

    A loading process that ended on it would make the training fail where it was asked
    to stop at the next step.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    threading.Thread(target=_obey, args=(os.getppid(),), daemon=True).start()


def _obey(rank_pid: int) -> None:
    """End on a SIGTERM of the training process, which waits for that when it exits."""
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != rank_pid:
        pass
    os._exit(0)


def _num_workers(config: ExperimentConfig, cpus: float) -> int:
    """Return the loading processes of a rank: its CPUs less one for the training."""
    asked = config.loader_config.num_workers
    if asked is not None:
        return asked
    # A rank bound to cores of its own counts only these.
    ranks = 1 if config.cpu_binding == "cores" else config.gpus
    return min(_MOST_WORKERS, max(1, int(cpus / ranks) - 1))
