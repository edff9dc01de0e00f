"""The ``dali`` loader: NVIDIA DALI decodes, on the GPU where there is one.

Which images there are, and which part of each is shown, DALI is told with every batch:
so the images are those of the other loaders. Threads read the files ahead; what is not
plain they hand over as bare pixels. Labels do not go through DALI.
"""

from __future__ import annotations

import contextlib
import io
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from nvidia.dali import fn
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.plugin.pytorch.torch_utils import feed_ndarray
from nvidia.dali.types import DALIImageType, DALIInterpType
from PIL import Image

from nbkit.config import DaliConfig, ExperimentConfig
from nbkit.datasets.manifest import Manifest
from nbkit.datasets.rgb import to_rgb
from nbkit.datasets.samples import Samples
from nbkit.errors import ConfigError
from nbkit.telemetry.cpus import usable_cpus
from nbkit.worker.data import Placement
from nbkit.worker.data.augmentation import Augmentation
from nbkit.worker.data.image_data import (
    NO_IMAGE,
    ImageData,
    Request,
    Requests,
    cpus_for_loading,
    read_image,
)
from nbkit.worker.data.images import unreadable_message
from nbkit.worker.data.window import Turn, Window

__all__ = ["DaliData", "load"]

# A network file system answers in a millisecond; several answers are awaited at once.
_READ_THREADS = 16
_IMAGES_PER_TASK = 8


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
        self._num_threads = max(
            1, cpus_for_loading(config, usable_cpus(), placement.cpus_shared_by)
        )
        # The pipeline of the training stays for the next epoch.
        self._train_pipeline: _Pipeline | None = None

    def close(self) -> None:
        """End DALI's threads; a second call does nothing."""
        super().close()
        self._train_pipeline = None

    def _settings(self) -> dict[str, Any]:
        on_gpu = self.placement.device.type == "cuda"
        return {
            "num_threads": self._num_threads,
            "decodes_on": "gpu" if on_gpu else "cpu",
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
            pipeline = self._new_pipeline()
        images = _Images(samples, self.augmentation)
        for number, pixels in enumerate(pipeline.pixels(images, requests), start=1):
            if is_training and number == len(requests):
                # Whoever trains does not ask for more than there are.
                self._train_pipeline = pipeline
            yield pixels

    def _new_pipeline(self) -> _Pipeline:
        return _Pipeline(
            self.config.loader_config.dali,
            self.placement.device,
            self._num_threads,
            self.batch_size,
            self.augmentation.size,
        )


def load(
    config: ExperimentConfig, manifest: Manifest, placement: Placement, batch_size: int
) -> DaliData:
    """Return one rank's part of a set of images; see `nbkit.worker.data.load`."""
    return DaliData(config, manifest, placement, batch_size)


class _Image(NamedTuple):
    """One image, and which part of it is shown."""

    number: int
    """Its place in the manifest."""
    data: bytes
    window: Window
    turn: Turn


class _Images:
    """Reads images; several threads use it at once."""

    def __init__(self, samples: Samples, augmentation: Augmentation) -> None:
        self._samples = samples
        self._augmentation = augmentation

    def read(self, epoch: int | None, indices: list[int]) -> list[_Image]:
        """Return images.

        Raises
        ------
        ConfigError
            If one cannot be read any more.
        """
        return [self._read(epoch, index) for index in indices]

    def check(self, images: list[_Image]) -> None:
        """Decode images one after the other, without DALI, where that is possible.

        Raises
        ------
        ConfigError
            If one cannot be decoded.
        """
        try:
            from nbkit.worker.data.decode import decode_window
        except ImportError:
            return  # a machine for which there is no wheel of it
        for image in images:
            decoding = self._samples.decoding(image.number)
            if decode_window(image.data, decoding, image.window) is None:
                error = ValueError("nvImageCodec fails; loader='torch' may read it")
                raise self._unreadable(image.number, error)

    def _read(self, epoch: int | None, index: int) -> _Image:
        decoding = self._samples.decoding(index)
        crop = self._augmentation.crop(decoding, epoch, index)
        try:
            # DALI would show a file that has been cut off below the crop.
            data = read_image(self._samples, index)
            if not decoding.is_plain:
                data = _bare_pixels(data)
        except Exception as error:  # decoders raise many kinds
            raise self._unreadable(index, error) from error
        return _Image(
            index,
            data,
            Window.of(decoding, crop, self._augmentation.size),
            Turn.of(decoding.orientation, crop.flip),
        )

    def _unreadable(self, index: int, error: Exception) -> ConfigError:
        return ConfigError(unreadable_message(self._samples.place(index), error))


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
        self._feed = _Feed()
        self._dali = Pipeline(
            batch_size,
            num_threads,
            device.index if device.type == "cuda" else None,
            seed=0,
            prefetch_queue_depth=config.prefetch_queue_depth,
        )
        with self._dali:
            self._dali.set_outputs(self._graph())
        self._dali.build()

    def pixels(
        self, images: _Images, requests: Requests
    ) -> Generator[torch.Tensor, None, None]:
        """Yield the pixels of every request; see `ImageData._pixels`."""
        depth = self._config.prefetch_queue_depth
        self._feed.ahead = _read_ahead(images, requests, depth)
        with contextlib.closing(self._feed.ahead):
            for number, request in enumerate(requests, start=1):
                pixels = self._pixels_of(request, images)
                if number == len(requests):
                    # The next epoch would begin with the end of this one. The memory
                    # of the last images is DALI's until then.
                    pixels = pixels.clone()
                    self._dali.reset()
                yield pixels

    def _pixels_of(self, request: Request, images: _Images) -> torch.Tensor:
        shown = [index != NO_IMAGE for index in request.indices]
        if all(shown):
            return self._next_pixels(images)
        shape = self._batch_size, self._size, self._size, 3
        pixels = torch.zeros(shape, dtype=torch.uint8, device=self._device)
        if any(shown):
            places = [place for place, is_shown in enumerate(shown) if is_shown]
            pixels[_index(places, self._device)] = self._next_pixels(images)
        return pixels

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

    def _next_pixels(self, images: _Images) -> torch.Tensor:
        try:
            (output,) = self._dali.run()
        except RuntimeError:
            if self._feed.under_way:
                # DALI does not say which image it is.
                images.check(self._feed.under_way[0][0])
            raise
        shown, _ = self._feed.under_way.popleft()
        tensor = output.as_tensor()
        if self._device.type == "cuda":
            pixels = torch.empty(tensor.shape(), dtype=torch.uint8, device=self._device)
            stream = torch.cuda.current_stream(self._device)
            feed_ndarray(tensor, pixels, cuda_stream=stream)
        else:
            pixels = torch.from_dlpack(tensor)
        _turn(pixels, [image.turn for image in shown])
        return pixels


class _Feed:
    """What DALI asks for its next batch.

    It knows nothing of the pipeline: each would keep the other in memory.
    """

    def __init__(self) -> None:
        self.ahead: Generator[list[_Image], None, None] = _nothing()
        self.under_way: deque[tuple[list[_Image], _Inputs]] = deque()
        """DALI reads its inputs where they are: they must stay until it is done."""

    def __call__(self) -> _Inputs:
        """Return the next batch; a StopIteration says that there is none."""
        images = next(self.ahead)
        inputs = _inputs(images)
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


def _inputs(images: list[_Image]) -> _Inputs:
    windows = [image.window for image in images]
    return _Inputs(
        [np.frombuffer(image.data, np.uint8) for image in images],
        np.array([(one.top, one.left) for one in windows], np.int32),
        np.array([(one.lower, one.right) for one in windows], np.int32),
        np.array([(one.part_top, one.part_left) for one in windows], np.float32),
        np.array([(one.part_lower, one.part_right) for one in windows], np.float32),
    )


def _turn(pixels: torch.Tensor, turns: list[Turn]) -> None:
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
        # A GPU wants them all at once; a processor has one in its cache.
        together = [_index(places, pixels.device)] if pixels.is_cuda else places
        for part in together:
            pixels[part] = change(pixels[part])


def _index(places: list[int], device: torch.device) -> torch.Tensor:
    """Return places as an index on a device, for which nobody waits.

    From ordinary memory the copy would wait for the steps that are under way.
    """
    index = torch.tensor(places)
    if device.type != "cuda":
        return index
    return index.pin_memory().to(device, non_blocking=True)


def _read_ahead(
    images: _Images, requests: Requests, depth: int
) -> Generator[list[_Image], None, None]:
    """Yield the images of every request that shows any, in order."""
    pool = ThreadPoolExecutor(_READ_THREADS)
    pending: deque[list[Future[list[_Image]]]] = deque()
    try:
        for epoch, indices in requests:
            shown = [index for index in indices if index != NO_IMAGE]
            tasks = range(0, len(shown), _IMAGES_PER_TASK)
            if shown:
                pending.append(
                    [
                        pool.submit(
                            images.read, epoch, shown[start : start + _IMAGES_PER_TASK]
                        )
                        for start in tasks
                    ]
                )
            if len(pending) > depth:
                yield _joined(pending.popleft())
        while pending:
            yield _joined(pending.popleft())
    finally:
        pool.shutdown(cancel_futures=True)


def _joined(tasks: list[Future[list[_Image]]]) -> list[_Image]:
    return [image for task in tasks for image in task.result()]


def _nothing() -> Generator[list[_Image], None, None]:
    yield from ()


def _bare_pixels(data: bytes) -> bytes:
    """Return an image as a file in the simplest format there is: PPM."""
    with Image.open(io.BytesIO(data)) as image:
        pixels = to_rgb(image)
        header = f"P6 {pixels.width} {pixels.height} 255\n"
        return header.encode() + pixels.tobytes()
