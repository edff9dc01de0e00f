"""One image: from the bytes of a file to the pixels of training or evaluation.

Decoded by Pillow. torchvision's own decoders take a quarter less processor time, but
are to be removed, and its PNG decoder brings the process down on some broken files:
https://docs.pytorch.org/vision/stable/io.html
"""

from __future__ import annotations

import io
import math
import random

import torch
from PIL import Image

__all__ = ["center_crop", "random_crop"]

# Aspect ratios of random crops: https://arxiv.org/abs/1409.4842, section 6.
_LOG_RATIO = math.log(4 / 3)

# Evaluation resizes the shorter side to 256 where it crops 224.
_CROP_TO_RESIZE = 224 / 256

_Box = tuple[float, float, float, float]
"""Left, top, right and lower edge, in pixels."""


def random_crop(
    data: bytes, size: int, area: tuple[float, float], generator: random.Random
) -> torch.Tensor:
    """Return a random part of an image, resized and flipped at random.

    Parameters
    ----------
    data
        The image file. Grey, CMYK and palette images become RGB, and transparency is
        dropped.
    size
        Side of the result, in pixels.
    area
        Smallest and largest share of the image's area.
    generator
        Decides everything that is random.

    Returns
    -------
    torch.Tensor
        RGB, uint8, shape ``(size, size, 3)``.

    Raises
    ------
    Exception
        Of many kinds, as Pillow's decoders chose them, if this is no whole image.

    References
    ----------
    https://docs.pytorch.org/vision/stable/generated/torchvision.transforms.RandomResizedCrop.html
    """
    with Image.open(io.BytesIO(data)) as image:
        left, top, right, lower = _random_box(image.size, area, generator)
        # A JPEG decoder can halve an image on the way; this asks for no more than is
        # thrown away afterwards.
        width, height = image.size
        image.draft(
            "RGB",
            (
                math.ceil(size * width / (right - left)),
                math.ceil(size * height / (lower - top)),
            ),
        )
        x, y = image.width / width, image.height / height
        part = _resize(image, size, (left * x, top * y, right * x, lower * y))
    if generator.random() < 0.5:
        part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return _pixels(part)


def center_crop(data: bytes, size: int) -> torch.Tensor:
    """Return the middle of an image whose shorter side is 256/224 of the result.

    Parameters
    ----------
    data
        The image file.
    size
        Side of the result, in pixels.

    Returns
    -------
    torch.Tensor
        RGB, uint8, shape ``(size, size, 3)``.

    Raises
    ------
    Exception
        As with `random_crop`.

    Notes
    -----
    Resizing everything and cutting the middle out afterwards gives the same pixels;
    here only the middle is resized.
    """
    with Image.open(io.BytesIO(data)) as image:
        side = min(image.size) * _CROP_TO_RESIZE
        left, top = (image.width - side) / 2, (image.height - side) / 2
        part = _resize(image, size, (left, top, left + side, top + side))
    return _pixels(part)


def _random_box(
    size: tuple[int, int], area: tuple[float, float], generator: random.Random
) -> _Box:
    width, height = size
    for _ in range(10):
        target = width * height * generator.uniform(*area)
        ratio = math.exp(generator.uniform(-_LOG_RATIO, _LOG_RATIO))
        w, h = round(math.sqrt(target * ratio)), round(math.sqrt(target / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = (
                generator.randint(0, width - w),
                generator.randint(0, height - h),
            )
            return left, top, left + w, top + h
    # No such crop fits, as in a very long image: the largest one in the middle does.
    w = min(width, round(height * 4 / 3))
    h = min(height, round(width * 4 / 3))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def _resize(image: Image.Image, size: int, box: _Box) -> Image.Image:
    return _to_rgb(image).resize((size, size), Image.Resampling.BILINEAR, box=box)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        # 16 bits a pixel; a conversion alone would cut off everything above 255.
        image = image.point(lambda value: value / 256).convert("L")
    elif image.mode == "P":
        # On the straight way Pillow warns of a palette with transparency.
        image = image.convert("RGBA")
    return image.convert("RGB")


def _pixels(image: Image.Image) -> torch.Tensor:
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    return pixels.view(image.height, image.width, 3)
