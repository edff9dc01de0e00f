"""Crop and flip of each image: the same for every loader.

A random crop follows from the seed, the epoch and the image's place in the manifest:
neither from the loader, nor from the number of loading processes or ranks.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Self, TypeAlias

from nbkit.config import ExperimentConfig
from nbkit.datasets.samples import Decoding

# Aspect ratios of random crops: https://arxiv.org/abs/1409.4842, section 6.
_LOG_RATIO = math.log(4 / 3)

# Evaluation resizes the shorter side to 256 where it crops 224.
_RESIZE_TO_CROP = 256 / 224

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right and lower edge, in pixels."""


@dataclass(frozen=True, slots=True)
class Crop:
    """Crop of the upright image, and whether it is mirrored.

    In pixels; in an evaluation, edges may be fractional.
    """

    left: float
    top: float
    width: float
    height: float
    flip: bool
    """Whether it is mirrored left to right, after all other operations."""

    def stored_box(self, decoding: Decoding) -> Box:
        """Return the crop in the pixels that the file stores."""
        # https://www.cipa.jp/std/documents/e/DC-008-2012_E.pdf (Exif 2.3, tag 274)
        left, right = self.left, self.left + self.width
        top, lower = self.top, self.top + self.height
        if decoding.orientation in (2, 3, 6, 7):
            left, right = decoding.width - right, decoding.width - left
        if decoding.orientation in (3, 4, 7, 8):
            top, lower = decoding.height - lower, decoding.height - top
        if decoding.orientation >= 5:
            return top, left, lower, right
        return left, top, right, lower


@dataclass(frozen=True, slots=True)
class Augmentation:
    """Crop and flip settings of a run."""

    seed: int
    size: int
    """Side of the result, in pixels."""
    area: tuple[float, float]
    """Smallest and largest share of an image's area that a random crop keeps."""

    @classmethod
    def of(cls, config: ExperimentConfig) -> Self:
        """Return the settings of a configuration."""
        area = config.crop_area_min, config.crop_area_max
        return cls(config.seed, config.image_size, area)

    def crop(self, decoding: Decoding, epoch: int | None, index: int) -> Crop:
        """Return the crop of an image."""
        width, height = decoding.width, decoding.height
        if epoch is None:
            return evaluation_crop(width, height, self.size)
        generator = random.Random(f"image/{self.seed}/{epoch}/{index}")
        return random_crop(width, height, self.area, generator)


def random_crop(
    width: int, height: int, area: tuple[float, float], generator: random.Random
) -> Crop:
    """Return a random part of an image, mirrored half of the time."""
    # https://docs.pytorch.org/vision/stable/generated/torchvision.transforms.RandomResizedCrop.html
    left, top, w, h = _random_box(width, height, area, generator)
    return Crop(left, top, w, h, generator.random() < 0.5)


def evaluation_crop(width: int, height: int, size: int) -> Crop:
    """Return the middle of an image, whose shorter side is 256/224 of the result."""
    # It is the part that resizing the shorter side and cutting the middle out
    # afterwards shows, up to a pixel: there the longer side and the corner of the cut
    # are rounded. Here only the middle has to be resized.
    side = min(width, height) * size / round(size * _RESIZE_TO_CROP)
    return Crop((width - side) / 2, (height - side) / 2, side, side, flip=False)


def _random_box(
    width: int, height: int, area: tuple[float, float], generator: random.Random
) -> tuple[int, int, int, int]:
    """Return left, top, width and height."""
    for _ in range(10):
        target = width * height * generator.uniform(*area)
        ratio = math.exp(generator.uniform(-_LOG_RATIO, _LOG_RATIO))
        w, h = round(math.sqrt(target * ratio)), round(math.sqrt(target / ratio))
        if 0 < w <= width and 0 < h <= height:
            left = generator.randint(0, width - w)
            return left, generator.randint(0, height - h), w, h
    # No such crop fits, as in a very long image: the largest one in the middle does.
    w = min(width, round(height * 4 / 3))
    h = min(height, round(width * 4 / 3))
    return (width - w) // 2, (height - h) // 2, w, h
