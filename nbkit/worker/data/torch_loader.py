"""The ``torch`` loader: loading processes of a plain DataLoader.

They decode, cut and hand over whole batches of bytes. Normalisation happens on the
device, so that a quarter of the data travels.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

from nbkit.datasets.samples import Decoding, Samples
from nbkit.errors import ConfigError
from nbkit.worker.data.augmentation import Augmentation, Crop
from nbkit.worker.data.image_data import (
    NO_IMAGE,
    ImageData,
    Request,
    Requests,
    read_image,
)
from nbkit.worker.data.images import decode_crop, naming

# Decoded together, and held in memory together.
_IMAGES_AT_ONCE = 32

_STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}

_OF_THE_EXTRA = ("cykooz_resizer", "nvidia", "nvidia.nvimgcodec")
"""Modules that only an environment with the extra for the fast decoder has."""


class _Decoder(NamedTuple):
    """What decodes images here."""

    name: str
    decode_crops: Callable[..., list[torch.Tensor | None]] | None
    fallback_reason: str | None
    """What is wrong with the faster one that is installed; None without one."""


def find_decoder() -> _Decoder:
    """Return the fast decoder, or Pillow where it is missing or cannot be used."""
    try:
        from nbkit.worker.data import decode

        decode.check()
    # Its names and arguments change from release to release, and a shared library of it
    # may not load.
    except Exception as error:  # noqa: BLE001 - of any kind
        if isinstance(error, ModuleNotFoundError) and error.name in _OF_THE_EXTRA:
            return _Decoder("Pillow", None, None)  # an environment without the extra
        return _Decoder("Pillow", None, f"{type(error).__name__}: {error}")
    return _Decoder("nvImageCodec", decode.decode_crops, None)


_DECODER = find_decoder()


class TorchData(ImageData):
    """One rank's part of a set of images; see `nbkit.worker.data.Data`."""

    loader = "torch"
    _train_loader: DataLoader[Any] | None = None

    def close(self) -> None:
        """End the loading processes; a second call does nothing."""
        super().close()
        # A DataLoader ends its processes when nothing refers to its iterator any more.
        self._train_loader = None

    def _settings(self) -> dict[str, Any]:
        return {
            "num_workers": self.num_workers,
            "prefetch_factor": self.config.loader_config.prefetch_factor,
            "pin_memory": self.pin_memory,
            "decoder": _DECODER.name,
            "fallback_reason": _DECODER.fallback_reason,
        }

    def _pixels(
        self, samples: Samples, requests: Requests
    ) -> Generator[torch.Tensor, None, None]:
        is_training = requests.epoch is not None
        loader = self._train_loader if is_training else None
        if loader is None:
            loader = self._new_loader(samples, persistent=is_training)
        if is_training:
            # Its loading processes stay for the next epoch.
            self._train_loader = loader
        pending = loader.sampler
        assert isinstance(pending, _Pending)
        pending.requests = requests
        # Processes begin with signals held back, and with no garbage of this one: a
        # library's threads do not come along into a forked process, where its
        # destructor would wait for them for ever.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        gc.freeze()
        try:
            batches = iter(loader)
        finally:
            gc.unfreeze()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for loaded in batches:
            if isinstance(loaded, str):
                raise ConfigError(loaded)
            yield loaded

    def _new_loader(self, samples: Samples, *, persistent: bool) -> DataLoader[Any]:
        settings = self.config.loader_config
        processes = self.num_workers > 0
        return DataLoader(
            _Batches(samples, self.augmentation),
            batch_size=None,  # the dataset makes whole batches
            sampler=_Pending(),
            num_workers=self.num_workers,
            # The default of Python 3.14 has a process between this one and its own.
            multiprocessing_context="fork" if processes else None,
            prefetch_factor=settings.prefetch_factor if processes else None,
            persistent_workers=persistent and processes,
            pin_memory=self.pin_memory,
            worker_init_fn=_leave_signals_to_the_rank,
            # Without its own generator it would draw from the training's, and a resumed
            # run would continue with other random numbers.
            generator=torch.Generator(),
        )


load = TorchData


class _Pending(Sampler[Request]):
    """What the loading processes are asked for next."""

    def __init__(self) -> None:
        self.requests: Iterable[Request] = ()

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)


class _Batches(Dataset[Any]):
    """Whole batches by request; this runs in the loading processes."""

    def __init__(self, samples: Samples, augmentation: Augmentation) -> None:
        self._samples = samples
        self._augmentation = augmentation
        size = augmentation.size
        self._none = torch.zeros((size, size, 3), dtype=torch.uint8)

    def __getitem__(self, request: Request) -> torch.Tensor | str:
        """Return pixels (uint8, shape ``(n, size, size, 3)``), or an error's text."""
        # Raised here, it would reach the training process wrapped in a traceback of
        # this one.
        pixels = []
        for start in range(0, len(request.indices), _IMAGES_AT_ONCE):
            indices = request.indices[start : start + _IMAGES_AT_ONCE]
            shown = [index for index in indices if index != NO_IMAGE]
            try:
                pixels += self._images(request.epoch, shown)
            except ConfigError as error:
                return str(error)
            pixels += [self._none] * (len(indices) - len(shown))
        # In a loading process it puts them where the training process sees them.
        return default_collate(pixels)

    def _images(self, epoch: int | None, indices: list[int]) -> list[torch.Tensor]:
        size = self._augmentation.size
        images: list[tuple[bytes, Decoding, Crop]] = []
        for index in indices:
            decoding = self._samples.decoding(index)
            crop = self._augmentation.crop(decoding, epoch, index)
            with naming(self._samples, index):
                images.append((read_image(self._samples, index), decoding, crop))
        decode = _DECODER.decode_crops
        decoded = decode(images, size) if decode else [None] * len(images)
        shown = []
        for index, image, pixels in zip(indices, images, decoded, strict=True):
            with naming(self._samples, index):
                shown.append(decode_crop(*image, size) if pixels is None else pixels)
        return shown


def _leave_signals_to_the_rank(worker: int) -> None:
    """Ignore what is sent to all processes of a run, as torchrun and Slurm do."""
    # A loading process that ended on it would make the training fail where it was asked
    # to stop at the next step.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    threading.Thread(target=_end_with_rank, args=(os.getppid(),), daemon=True).start()


def _end_with_rank(rank_pid: int) -> None:
    """End on a SIGTERM of the training process, which waits for that when it exits."""
    while signal.sigwaitinfo({signal.SIGTERM}).si_pid != rank_pid:
        pass
    os._exit(0)
