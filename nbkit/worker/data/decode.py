"""The fast way from the bytes of an image file to the pixels that are shown.

Of a plain JPEG or PNG, nvImageCodec decodes on the processor what the crop needs: rows
below it are not even read, and blocks beside it are not transformed. fast_image_resize
makes that part smaller or larger. Everything else goes the way of Pillow, see
`nbkit.worker.data.images`.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
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
from nvidia import nvimgcodec as _nvimgcodec

from nbkit.datasets.samples import Decoding
from nbkit.worker.data.augmentation import Crop
from nbkit.worker.data.images import decode_crop
from nbkit.worker.data.window import Turn, Window

__all__ = ["decode_crop_fast", "decode_window"]

# Its wheel says nothing of types.
nvimgcodec: Any = _nvimgcodec

_BILINEAR = ResizeAlg.convolution(FilterType.bilinear)


def decode_crop_fast(
    data: bytes, decoding: Decoding, crop: Crop, size: int
) -> torch.Tensor:
    """Return a part of an image, as `nbkit.worker.data.images.decode_crop` does.

    Both antialias when they make an image smaller, by the same triangle filter, and
    blend neighbours when they make it larger. Their pixels differ by 2 of 255 levels
    at the most, and by 0.2 on average.

    Parameters
    ----------
    data, decoding, crop, size
        As those of `decode_crop`.

    Returns
    -------
    torch.Tensor
        RGB, uint8, shape ``(size, size, 3)``.

    Raises
    ------
    Exception
        As `decode_crop`.

    References
    ----------
    https://docs.nvidia.com/cuda/nvimagecodec/
    https://github.com/Cykooz/fast_image_resize
    """
    window = Window.of(decoding, crop, size)
    pixels = decode_window(data, decoding, window) if decoding.is_plain else None
    if pixels is None:
        return decode_crop(data, decoding, crop, size)
    part = torch.frombuffer(_TOOLS.resize(pixels, window, size), dtype=torch.uint8)
    upright = part.view(size, size, 3)
    turn = Turn.of(decoding.orientation, crop.flip)
    if turn.left_to_right:
        upright = upright.flip(1)
    if turn.top_to_bottom:
        upright = upright.flip(0)
    return upright.transpose(0, 1) if turn.transposed else upright


def decode_window(data: bytes, decoding: Decoding, window: Window) -> np.ndarray | None:
    """Return some of an image's stored pixels.

    Parameters
    ----------
    data
        The image file, of any format that nvImageCodec knows.
    decoding
        What the manifest knows of the image.
    window
        The pixels.

    Returns
    -------
    numpy.ndarray or None
        RGB, uint8, shape ``(lower - top, right - left, 3)``, valid until this thread's
        next call; None if this is no image that nvImageCodec decodes, or not of the
        size that the manifest knows.
    """
    return _TOOLS.decode(data, decoding, window)


class _Tools(threading.local):
    """A decoder and a resizer of its own for every thread of every process."""

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
        self._image: Any = None
        self._target: ImageData | None = None

    def decode(
        self, data: bytes, decoding: Decoding, window: Window
    ) -> np.ndarray | None:
        """Return the window's pixels; see `decode_window`."""
        if self._pid != os.getpid():
            self.__init__()
        width, height = decoding.width, decoding.height
        if decoding.orientation >= 5:
            width, height = height, width
        stream = nvimgcodec.CodeStream(data)
        try:
            if (stream.width, stream.height) != (width, height):
                return None
        except RuntimeError:  # no image that it knows
            return None
        region = nvimgcodec.Region(window.top, window.left, window.lower, window.right)
        self._image = self._decoder.decode(
            stream.get_sub_code_stream(region=region),
            image=self._image,
            params=self._parameters,
        )
        return None if self._image is None else np.asarray(self._image)

    def resize(self, pixels: np.ndarray, window: Window, size: int) -> bytearray:
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


_TOOLS = _Tools()
