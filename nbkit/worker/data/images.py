"""One image: from the bytes of a file to the cropped pixels.

Decoded by Pillow, whose resizing antialiases: the reference for every other decoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from PIL import Image

from nbkit.datasets.rgb import open_image, to_rgb
from nbkit.datasets.samples import Decoding, Samples
from nbkit.errors import ConfigError
from nbkit.worker.data.augmentation import Crop

# What brings stored pixels upright, by EXIF orientation, as ImageOps.exif_transpose.
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode_crop(data: bytes, decoding: Decoding, crop: Crop, size: int) -> torch.Tensor:
    """Return a part of an image, upright, resized, and mirrored if asked for."""
    part = decode_whole(data, decoding).resize(
        (size, size), Image.Resampling.BILINEAR, box=crop.stored_box(decoding)
    )
    # Turning the small result costs less than turning the image.
    if decoding.orientation in _UPRIGHT:
        part = part.transpose(_UPRIGHT[decoding.orientation])
    if crop.flip:
        part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    pixels = torch.frombuffer(bytearray(part.tobytes()), dtype=torch.uint8)
    return pixels.view(size, size, 3)


def decode_whole(data: bytes, decoding: Decoding) -> Image.Image:
    """Return an image in RGB as it is stored."""
    with open_image(data) as image:
        if image.size != decoding.stored_size:
            before, now = (f"{w} x {h}" for w, h in (decoding.stored_size, image.size))
            message = f"size changed from {before} to {now} pixels"
            raise ValueError(message)
        return to_rgb(image)


@contextmanager
def naming(samples: Samples, index: int) -> Iterator[None]:
    """Name the image of the manifest that cannot be read."""
    try:
        yield
    except MemoryError as error:
        message = (
            f"{samples.place(index)} cannot be decoded: out of memory. Use a "
            "smaller loader_config.num_workers or image_size."
        )
        raise ConfigError(message) from error
    except Exception as error:  # decoders raise many kinds
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        message = (
            f"{samples.place(index)} is no longer a readable image "
            f"({text.splitlines()[0]}). Restore the file, and do not change data that "
            "a run uses."
        )
        raise ConfigError(message) from error
