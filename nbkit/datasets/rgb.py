"""Conversion of any image to 8-bit RGB, the same for all readers.

Grayscale of more than 8 bits becomes 256 equal steps of a range. Of 16 bits the range
is all that 16 bits can say. Of 32 bits, integers and floats, it is what the file states
for black and white (``SMinSampleValue`` and ``SMaxSampleValue`` of a TIFF), else what
is between its own smallest and largest value.
"""

from __future__ import annotations

import functools
import io
import math
import numbers
from typing import Any

import numpy as np
import PIL
from PIL import Image, ImageFile, UnidentifiedImageError, features

# Pillow decodes these by itself: EPS would start a program, and IPTC may contain images
# of every format. They are asked in Pillow's own order.
_FORMATS = (
    *("BMP", "DIB", "GIF", "JPEG", "PPM", "PNG", "AVIF", "BLP", "CUR", "PCX", "DCX"),
    *("DDS", "FITS", "FLI", "FTEX", "GBR", "JPEG2000", "ICNS", "ICO", "IM", "IMT"),
    *("MCIDAS", "TIFF", "MSP", "PCD", "PIXAR", "PSD", "QOI", "SGI", "SPIDER", "SUN"),
    *("TGA", "WEBP", "XBM", "XPM", "XVTHUMB"),
)

_GIT_LFS = b"version https://git-lfs.github.com/spec/"
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
"""How a TIFF begins, in either order of bytes; with a plus a BigTIFF."""

_SAMPLE_FORMAT, _BITS_PER_SAMPLE = 339, 258
_SMALLEST_VALUE, _LARGEST_VALUE = 340, 341
"""Tags of TIFF 6.0: https://www.itu.int/itudoc/itu-t/com16/tiff-fx/docs/tiff6.pdf"""
_SIGNED = 2

_ROWS_AT_ONCE = 256
_FEW_LEVELS = 16


def open_image(data: bytes) -> ImageFile.ImageFile:
    """Open an image file; only this function lets Pillow detect its format."""
    try:
        return Image.open(io.BytesIO(data), formats=_formats())
    except UnidentifiedImageError as error:
        message = "a format that Pillow does not support"
        if data.startswith(_GIT_LFS):
            message = (
                "a Git LFS pointer instead of the file; run 'git lfs pull' in its "
                "repository"
            )
        elif data.startswith(_TIFF):
            message = "a TIFF file that is damaged or not supported by Pillow"
        raise UnidentifiedImageError(message) from error


def decoder_version() -> str:
    """Return the version of Pillow and its parts, which decide what can be read."""
    return " ".join(("Pillow", PIL.__version__, *features.get_supported()))


def to_rgb(image: Image.Image) -> Image.Image:
    """Return an image in 8-bit RGB, whatever it was."""
    if is_high_bit_depth(image):
        image = _in_eight_bits(image)
    elif image.mode == "P":
        # On the straight way Pillow warns of a palette with transparency.
        image = image.convert("RGBA")
    elif image.mode == "La":
        image = image.convert("LA")  # there is no other way
    return image.convert("RGB")


def is_high_bit_depth(image: Image.Image) -> bool:
    """Return whether an image is grayscale of more than 8 bits."""
    return image.mode[0] in "IF"


def is_coarse_high_bit_depth(image: Image.Image, shown: Image.Image) -> bool:
    """Return whether 8 bits keep few of a high bit depth image's many values."""
    levels = sum(1 for pixels in shown.histogram()[:256] if pixels)
    return levels <= _FEW_LEVELS and levels < len(np.unique(np.asarray(image)))


@functools.cache
def _formats() -> tuple[str, ...]:
    Image.init()
    # Another version of Pillow may have fewer.
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def _in_eight_bits(image: Image.Image) -> Image.Image:
    image.load()
    values = np.asarray(image)
    if image.mode.startswith("I;16"):
        return Image.fromarray((values >> 8).astype(np.uint8))
    if _is_unsigned(image):
        values = values.view(np.uint32)  # Pillow gives the same bits as signed
    low, high = _stated_range(image) or _range_of(values)
    shown = np.zeros(values.shape, np.uint8)
    for start in range(0, len(values) if high > low else 0, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        # In 64 bits no difference of two values of 32 is too large.
        steps = (values[rows].astype(np.float64) - low) * (256 / (high - low))
        shown[rows] = np.nan_to_num(steps, nan=0).clip(0, 255)
    return Image.fromarray(shown)


def _is_unsigned(image: Image.Image) -> bool:
    """Return whether a file says that its integers of 32 bits are unsigned."""
    tags: Any = getattr(image, "tag_v2", {})
    if image.mode != "I" or _number(tags, _BITS_PER_SAMPLE) != 32:
        return False
    # Unsigned is what TIFF means where a file does not say.
    return tags.get(_SAMPLE_FORMAT) is None or _number(tags, _SAMPLE_FORMAT) == 1


def _stated_range(image: Image.Image) -> tuple[float, float] | None:
    """Return the values that a file says are black and, above it, white."""
    if image.format == "PPM" and image.mode == "I":
        return 0, 65_536
    tags: Any = getattr(image, "tag_v2", {})
    low, high = _number(tags, _SMALLEST_VALUE), _number(tags, _LARGEST_VALUE)
    if low is not None and high is not None and low < high:
        return low, high
    if _number(tags, _BITS_PER_SAMPLE) == 16 and image.mode == "I":
        signed = _number(tags, _SAMPLE_FORMAT) == _SIGNED
        return (-32_768, 32_768) if signed else (0, 65_536)
    return None


def _number(tags: Any, tag: int) -> float | None:
    value = tags.get(tag)
    if isinstance(value, tuple) and len(value) == 1:
        (value,) = value
    if not isinstance(value, numbers.Real):
        return None
    return float(value) if math.isfinite(value) else None


def _range_of(values: np.ndarray) -> tuple[float, float]:
    if values.dtype.kind == "f":
        values = values[np.isfinite(values)]
    return (float(values.min()), float(values.max())) if values.size else (0, 0)
