"""The ``dali`` loader: NVIDIA DALI decodes, on the GPU if there is one.

DALI gets the images and their crops with every batch, so they are the same as with
other loaders. Threads read the files ahead; images that are not plain, or that
nvImageCodec cannot decode, are passed as decoded pixels. Labels do not go through DALI.

The pixels differ by at most 2 of 255 levels, except in the outermost ring of an image
that is downscaled and shown up to its border. Where the filter reaches outside the
image, DALI repeats the last pixel, and Pillow uses existing pixels only: a frame of 2
black pixels around a white image of 256 x 256 becomes 19 levels darker at 64 x 64, a
frame of one pixel 40; photographs have differed by up to 56 there.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from nvidia.dali import fn
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.plugin.pytorch import (
    feed_ndarray,  # pyright: ignore[reportPrivateImportUsage] # its documented place
)
from nvidia.dali.types import DALIImageType, DALIInterpType

from nbkit.config import DaliConfig, ExperimentConfig
from nbkit.datasets.manifest import Manifest
from nbkit.datasets.samples import Samples
from nbkit.worker.data import Placement
from nbkit.worker.data.dali_images import Images, ShownImage, read_ahead
from nbkit.worker.data.image_data import NO_IMAGE, ImageData, Request, Requests
from nbkit.worker.data.window import Turn

_OF_THE_MACHINE = ("out of memory", "CUDA", "cuda", "alloc")
"""In errors of DALI that are not the files'."""


class DaliData(ImageData):
    """One rank's part of a set of images; see `nbkit.worker.data.Data`."""

    loader = "dali"

    def __init__(
        self,
        config: ExperimentConfig,
        manifest: Manifest,
        placement: Placement,
        batch_size: int,
    ) -> None:
        super().__init__(config, manifest, placement, batch_size)
        self._num_threads = max(1, self.num_workers)
        # The pipeline of the training stays for the next epoch.
        self._train_pipeline: _Pipeline | None = None
        self._refused: tuple[set[int], set[int]] = set(), set()
        """Places of evaluation and training images that nvImageCodec does not decode
        although they are plain, as far as they have been shown."""

    def close(self) -> None:
        """Stop DALI's threads; a second call does nothing."""
        super().close()
        self._train_pipeline = None

    def _settings(self) -> dict[str, Any]:
        on_gpu = self.placement.device.type == "cuda"
        return {
            "num_threads": self._num_threads,
            "decodes_on": "gpu" if on_gpu else "cpu",
            "refused_images": sum(map(len, self._refused)),
            **self.config.loader_config.dali.model_dump(),
        }

    def _pixels(
        self, samples: Samples, requests: Requests
    ) -> Generator[torch.Tensor, None, None]:
        is_training = requests.epoch is not None
        pipeline = self._train_pipeline if is_training else None
        # One that is left in the middle of an epoch, or fails, is not used again.
        self._train_pipeline = None if is_training else self._train_pipeline
        if pipeline is None:
            pipeline = _Pipeline(
                self.config.loader_config.dali,
                self.placement.device,
                self._num_threads,
                self.batch_size,
                self.augmentation.size,
            )
        images = Images(
            samples,
            self.augmentation,
            self._refused[is_training],
            on_gpu=self.placement.device.type == "cuda",
        )
        for number, pixels in enumerate(pipeline.pixels(images, requests), start=1):
            if is_training and number == len(requests):
                # A training does not ask for more than there are.
                self._train_pipeline = pipeline
            yield pixels


load = DaliData


class _Pipeline:
    """DALI's graph, and what goes into it and comes out."""

    def __init__(
        self,
        config: DaliConfig,
        device: torch.device,
        num_threads: int,
        batch_size: int,
        size: int,
    ) -> None:
        self._config = config
        self._device = device
        self._batch_size = batch_size
        self._size = size
        self._num_threads = num_threads
        self._feed = _Feed()
        self._dali = self._build()

    def pixels(
        self, images: Images, requests: Requests
    ) -> Generator[torch.Tensor, None, None]:
        """Yield the pixels of every request; see `ImageData._pixels`."""
        depth = self._config.prefetch_queue_depth
        with contextlib.closing(read_ahead(images, requests, depth)) as ahead:
            self._feed.ahead = ahead
            for number, request in enumerate(requests, start=1):
                pixels = self._pixels_of(request, images)
                if number == len(requests):
                    # The next epoch would begin with the end of this one. The memory
                    # of the last images is DALI's until then.
                    pixels = pixels.clone()
                    self._dali.reset()
                yield pixels

    def _pixels_of(self, request: Request, images: Images) -> torch.Tensor:
        shown = [index != NO_IMAGE for index in request.indices]
        if all(shown):
            return self._next_pixels(images)
        shape = self._batch_size, self._size, self._size, 3
        pixels = torch.zeros(shape, dtype=torch.uint8, device=self._device)
        if any(shown):
            places = [place for place, is_shown in enumerate(shown) if is_shown]
            pixels[_index(places, self._device)] = self._next_pixels(images)
        return pixels

    def _build(self) -> Pipeline:
        pipeline = Pipeline(
            self._batch_size,
            self._num_threads,
            self._device.index if self._device.type == "cuda" else None,
            seed=0,
            prefetch_queue_depth=self._config.prefetch_queue_depth,
        )
        with pipeline:
            pipeline.set_outputs(self._graph())
        pipeline.build()
        return pipeline

    def _graph(self) -> Any:
        config = self._config
        files, start, end, part_start, part_end = fn.external_source(
            self._feed, num_outputs=len(_Inputs._fields), no_copy=True
        )
        settings = {
            "device": "mixed" if self._device.type == "cuda" else "cpu",
            "output_type": DALIImageType.RGB,
            # The manifest says which way is up.
            "adjust_orientation": False,
            "hw_decoder_load": config.hw_decoder_load,
            "preallocate_width_hint": config.preallocate_width_hint,
            "preallocate_height_hint": config.preallocate_height_hint,
            # As the decoders of the processor do it.
            "jpeg_fancy_upsampling": True,
            # Its threads stay on the processors that this rank may use.
            "affine": False,
        }
        part = {"start": start, "end": end, "axis_names": "HW"}
        if config.roi_decode:
            pixels = fn.decoders.image_slice(files, **part, **settings)
        else:
            pixels = fn.slice(fn.decoders.image(files, **settings), **part)
        return fn.resize(
            pixels,
            size=(self._size, self._size),
            roi_start=part_start,
            roi_end=part_end,
            interp_type=DALIInterpType.INTERP_LINEAR,
            antialias=True,
        )

    def _next_pixels(self, images: Images) -> torch.Tensor:
        output = self._run(images)
        shown, _ = self._feed.under_way.popleft()
        tensor = output.as_tensor()
        if self._device.type == "cuda":
            pixels = torch.empty(tensor.shape(), dtype=torch.uint8, device=self._device)
            stream = torch.cuda.current_stream(self._device)
            feed_ndarray(tensor, pixels, cuda_stream=stream)
        else:
            pixels = torch.from_dlpack(tensor)
        _turn_pixels(pixels, [image.turn for image in shown])
        return pixels

    def _run(self, images: Images) -> Any:
        """Return DALI's next batch, in which Pillow decodes what DALI cannot."""
        while True:
            try:
                (output,) = self._dali.run()
            except RuntimeError as error:
                batches = [batch for batch, _ in self._feed.under_way]
                # Before that word DALI quotes source, whose paths may be called so.
                reason = str(error).rpartition("encountered:")[2]
                is_the_machine = any(word in reason for word in _OF_THE_MACHINE)
                again = (
                    None if is_the_machine else images.without_refused(batches, reason)
                )
                if again is None:
                    raise
            else:
                return output
            # A pipeline that has failed cannot be used any more. Its memory is free
            # before another one asks for as much; the error would keep it.
            del self._dali
            self._feed.under_way.clear()
            self._feed.again.extendleft(reversed(again))
            self._dali = self._build()


class _Feed:
    """What DALI asks for its next batch.

    It knows nothing of the pipeline: each would keep the other in memory.
    """

    def __init__(self) -> None:
        self.ahead: Iterator[list[ShownImage]] = iter(())
        self.under_way: deque[tuple[list[ShownImage], _Inputs]] = deque()
        """DALI reads its inputs where they are: they must stay until it is done."""
        self.again: deque[list[ShownImage]] = deque()
        """Batches that were under way when DALI failed; they come first."""

    def __call__(self) -> _Inputs:
        """Return the next batch; a StopIteration says that there is none."""
        images = self.again.popleft() if self.again else next(self.ahead)
        windows = [image.window for image in images]
        inputs = _Inputs(
            [np.frombuffer(image.data, np.uint8) for image in images],
            np.array([(w.top, w.left) for w in windows], np.int32),
            np.array([(w.lower, w.right) for w in windows], np.int32),
            np.array([(w.part_top, w.part_left) for w in windows], np.float32),
            np.array([(w.part_lower, w.part_right) for w in windows], np.float32),
        )
        self.under_way.append((images, inputs))
        return inputs


class _Inputs(NamedTuple):
    """One batch for DALI; rows and columns in this order."""

    files: list[np.ndarray]
    start: np.ndarray
    """First row and column to decode, of the stored pixels."""
    end: np.ndarray
    part_start: np.ndarray
    """Where in these the part begins that is shown."""
    part_end: np.ndarray


def _turn_pixels(pixels: torch.Tensor, turns: list[Turn]) -> None:
    """Bring images upright and mirror them, in place."""
    for turned, change in (
        ([turn.left_to_right for turn in turns], lambda image: image.flip(-2)),
        ([turn.top_to_bottom for turn in turns], lambda image: image.flip(-3)),
        (
            [turn.transposed for turn in turns],
            lambda image: image.transpose(-2, -3).contiguous(),
        ),
    ):
        places = [place for place, is_turned in enumerate(turned) if is_turned]
        if not places:
            continue
        # A GPU wants them all together; a processor has one in its cache.
        together = [_index(places, pixels.device)] if pixels.is_cuda else places
        for part in together:
            pixels[part] = change(pixels[part])


def _index(places: list[int], device: torch.device) -> torch.Tensor:
    """Return places as an index on a device, without waiting for it."""
    # From ordinary memory the copy would wait for the steps that are under way.
    index = torch.tensor(places)
    if device.type != "cuda":
        return index
    return index.pin_memory().to(device, non_blocking=True)
