"""Part of the stored pixels that a crop needs, and its orientation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nbkit.datasets.samples import Decoding
from nbkit.worker.data.augmentation import Crop


@dataclass(frozen=True, slots=True)
class PixelWindow:
    """The stored pixels that a crop needs.

    A resize that antialiases, as Pillow's does, also looks at the neighbours of the
    part that it shows: as far as one pixel of the result reaches.
    """

    left: int
    top: int
    right: int
    lower: int
    part_left: float
    """Edges of the crop within the window."""
    part_top: float
    part_right: float
    part_lower: float

    @classmethod
    def of(cls, decoding: Decoding, crop: Crop, size: int) -> PixelWindow:
        """Return the window of a crop that is shown in ``size`` x ``size`` pixels."""
        width, height = decoding.stored_size
        left, top, right, lower = crop.stored_box(decoding)
        first_column, last_column = _pixel_range(left, right, width, size)
        first_row, last_row = _pixel_range(top, lower, height, size)
        return cls(
            first_column,
            first_row,
            last_column,
            last_row,
            left - first_column,
            top - first_row,
            right - first_column,
            lower - first_row,
        )


@dataclass(frozen=True, slots=True)
class Turn:
    """How stored pixels become upright, and mirrored if asked for.

    First both mirrorings, then rows and columns change places.
    """

    left_to_right: bool
    top_to_bottom: bool
    transposed: bool

    @classmethod
    def of(cls, orientation: int, flip: bool) -> Turn:
        """Return what an EXIF orientation and a flip of the upright image ask for."""
        across = orientation in (2, 3, 7, 8)
        down = orientation in (3, 4, 6, 7)
        if orientation >= 5:
            # What is left and right in the end, is up and down before.
            return cls(across, down != flip, transposed=True)
        return cls(across != flip, down, transposed=False)


def _pixel_range(first: float, last: float, length: int, size: int) -> tuple[int, int]:
    """Return the range of pixels that a part from first to last is made of."""
    margin = max(1.0, (last - first) / size)
    return max(0, math.floor(first - margin)), min(length, math.ceil(last + margin))
