"""Fast path from the bytes of an image file to the cropped pixels.

Of a plain JPEG or PNG, nvImageCodec decodes on the processor what the crop needs: rows
below it are not even read, and blocks beside it are not transformed. fast_image_resize
makes that part smaller or larger. Everything else goes the way of Pillow, see
`nbkit.worker.data.images`.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

# Without it, `from nvidia import nvimgcodec` would not say that a module is missing.
import nvidia.nvimgcodec as _nvimgcodec
import torch
from cykooz_resizer import (
    CropBox,
    FilterType,
    ImageData,
    PixelType,
    ResizeAlg,
    ResizeOptions,
    Resizer,
)
from PIL import Image

from nbkit.datasets.check import inspect_image
from nbkit.datasets.samples import Decoding
from nbkit.worker.data.augmentation import Crop
from nbkit.worker.data.window import PixelWindow, Turn

# Its wheel says nothing of types.
nvimgcodec: Any = _nvimgcodec

_SIDE, _COLOUR = 8, (200, 100, 50)
_BILINEAR = ResizeAlg.convolution(FilterType.bilinear)


def check() -> None:
    """See that a small picture is decoded as it is."""
    file = io.BytesIO()
    Image.new("RGB", (_SIDE, _SIDE), _COLOUR).save(file, "PNG")
    data = file.getvalue()
    whole = Crop(0, 0, _SIDE, _SIDE, flip=False)
    (shown,) = decode_crops([(data, inspect_image(data), whole)], _SIDE)
    if shown is None or not (shown == torch.tensor(_COLOUR, dtype=torch.uint8)).all():
        message = "a test image is decoded to a wrong color"
        raise RuntimeError(message)


def decode_crops(
    images: Sequence[tuple[bytes, Decoding, Crop]], size: int
) -> list[torch.Tensor | None]:
    """Return parts of images, as `nbkit.worker.data.images.decode_crop` does."""
    # Both antialias when they make an image smaller, by the same triangle filter, and
    # blend neighbours when they make it larger. Their pixels differ by 2 of 255 levels
    # at the most, and by 0.15 on average.
    # https://docs.nvidia.com/cuda/nvimagecodec/
    # https://github.com/Cykooz/fast_image_resize
    shown: list[torch.Tensor | None] = [None] * len(images)
    plain = [
        place for place, (_, decoding, _) in enumerate(images) if decoding.is_plain
    ]
    windows = [PixelWindow.of(*images[place][1:], size) for place in plain]
    decoded = _TOOLS.decode(
        [
            (*images[place][:2], window)
            for place, window in zip(plain, windows, strict=True)
        ]
    )
    for place, window, pixels in zip(plain, windows, decoded, strict=True):
        if pixels is not None:
            _, decoding, crop = images[place]
            turn = Turn.of(decoding.orientation, crop.flip)
            shown[place] = _turn_pixels(_TOOLS.resize(pixels, window, size), size, turn)
    return shown


def decode_window(
    data: bytes, decoding: Decoding, window: PixelWindow
) -> np.ndarray | None:
    """Return some of an image's stored pixels."""
    (pixels,) = _TOOLS.decode([(data, decoding, window)])
    return pixels


def _turn_pixels(part: bytearray, size: int, turn: Turn) -> torch.Tensor:
    pixels = torch.frombuffer(part, dtype=torch.uint8).view(size, size, 3)
    if turn.left_to_right:
        pixels = pixels.flip(1)
    if turn.top_to_bottom:
        pixels = pixels.flip(0)
    return pixels.transpose(0, 1) if turn.transposed else pixels


class _Tools(threading.local):
    """A separate decoder and resizer for every thread of every process."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._resizer = Resizer()
        # With one thread it works in the calling one, and starts none.
        self._decoder = nvimgcodec.Decoder(
            device_id=nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY,
            max_num_cpu_threads=1,
            backends=[nvimgcodec.Backend(nvimgcodec.CPU_ONLY)],
        )
        self._parameters = nvimgcodec.DecodeParams(
            apply_exif_orientation=False, color_spec=nvimgcodec.ColorSpec.SRGB
        )
        # Used again and again: new memory would cost a page fault every 4 KiB.
        self._images: list[Any] = []
        self._target: ImageData | None = None

    def decode(
        self, images: Sequence[tuple[bytes, Decoding, PixelWindow]]
    ) -> list[np.ndarray | None]:
        """Return the pixels of several windows; see `decode_window`."""
        if self._pid != os.getpid():
            self.__init__()
        arrays: list[np.ndarray | None] = [None] * len(images)
        streams = [_stream(*image) for image in images]
        places = [place for place, stream in enumerate(streams) if stream is not None]
        count = len(places)
        if not count:
            return arrays
        buffers = self._images[:count] if len(self._images) >= count else None
        decoded = self._decoder.decode(
            [streams[place] for place in places],
            images=buffers,
            params=self._parameters,
        )
        for place, image in zip(places, decoded, strict=True):
            arrays[place] = None if image is None else np.asarray(image)
        unused = self._images[count:]
        self._images = [image for image in decoded if image is not None] + unused
        return arrays

    def resize(self, pixels: np.ndarray, window: PixelWindow, size: int) -> bytearray:
        """Return the part that is shown, RGB, in ``size`` x ``size`` pixels."""
        height, width, _ = pixels.shape
        source = ImageData(width, height, PixelType.U8x3, pixels.tobytes())
        if self._target is None or self._target.width != size:
            self._target = ImageData(size, size, PixelType.U8x3)
        box = CropBox(
            window.part_left,
            window.part_top,
            window.part_right - window.part_left,
            window.part_lower - window.part_top,
        )
        options = ResizeOptions(_BILINEAR, False, box)
        self._resizer.resize(source, self._target, options)
        return bytearray(self._target.get_buffer())


def _stream(data: bytes, decoding: Decoding, window: PixelWindow) -> Any:
    """Return the decoder's parameters; None if this image is not of the known size."""
    stream = nvimgcodec.CodeStream(data)
    try:
        if (stream.width, stream.height) != decoding.stored_size:
            return None
    except RuntimeError:  # no image that it knows
        return None
    region = nvimgcodec.Region(window.top, window.left, window.lower, window.right)
    return stream.get_sub_code_stream(region=region)


_TOOLS = _Tools()
