"""Check of one image: whether it is readable, and what its decoder needs.

Pillow decides for all loaders: what it decodes to its last row is readable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from PIL import Image

from nbkit.datasets.rgb import (
    is_coarse_high_bit_depth,
    is_high_bit_depth,
    open_image,
    to_rgb,
)
from nbkit.datasets.samples import Decoding

ORIENTATION_TAG = 0x0112
_TURNED = {5, 6, 7, 8}
"""EXIF orientations in which width and height change places."""
_OUT_OF_MEMORY = "out of memory"

_START_OF_FRAME, _START_OF_SCAN = 0xC2, 0xDA
"""Of a progressive JPEG."""
_AFTER_SCAN = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
"""In a scan the byte 0xff is followed by 0, or by a marker that restarts the scan."""


class UnreadableImageError(ValueError):
    """A file is not a complete image; the message contains the reason."""


def inspect_image(data: bytes) -> Decoding:
    """Decode an image once and return its facts for decoders."""
    if not data:
        message = "the file is empty"
        raise UnreadableImageError(message)
    try:
        with open_image(data) as image:
            plain = _is_plain(image, data)
            width, height = image.size
            image.load()
            high_bit_depth, coarse = is_high_bit_depth(image), False
            if not plain:
                shown = to_rgb(image)  # as it will be shown
                coarse = high_bit_depth and is_coarse_high_bit_depth(image, shown)
            orientation = _orientation(image)
    except (MemoryError, ImportError):
        raise
    except Exception as error:  # decoders raise many kinds
        if isinstance(error, OSError) and error.errno is not None:
            raise
        if str(error).startswith(_OUT_OF_MEMORY):
            raise MemoryError from error
        text = str(error) or type(error).__name__
        raise UnreadableImageError(text.splitlines()[0]) from error
    if orientation in _TURNED:
        width, height = height, width
    return Decoding(width, height, orientation, plain, high_bit_depth, coarse)


def _is_plain(image: Image.Image, data: bytes) -> bool:
    if image.mode not in ("L", "RGB"):
        return False
    if image.format == "JPEG":
        return "progressive" not in image.info or _has_every_scan(data)
    if image.format != "PNG" or "transparency" in image.info:
        return False
    return getattr(image, "n_frames", 1) == 1


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation; damaged EXIF data count as upright."""
    try:
        orientation = image.getexif().get(ORIENTATION_TAG, 1)
        # It may be a fraction or a float, and as good as the integer.
        return int(orientation) if orientation in range(1, 9) else 1
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - the parsers of EXIF data raise many kinds
        return 1


def _has_every_scan(data: bytes) -> bool:
    """Return whether no scan of a progressive JPEG is missing.

    Where one is, libjpeg smooths what is decoded: a crop that is decoded alone has
    other pixels. https://www.w3.org/Graphics/JPEG/itu-t81.pdf, annexes B and G
    """
    missing = set[tuple[int, int]]()
    for marker, body in _segments(data):
        if marker == _START_OF_FRAME:
            missing = {(part, number) for part in body[6::3] for number in range(64)}
        elif marker == _START_OF_SCAN and len(body) >= 6 and not body[-1] & 0x0F:
            # These components and coefficients have their last bit.
            numbers = range(body[-3], body[-2] + 1)
            missing -= {(part, number) for part in body[1:-3:2] for number in numbers}
            if not missing:
                return True
    return False


def _segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield markers and what their segments hold, as long as one follows another."""
    place = 2
    while data[place : place + 1] == b"\xff" and place + 4 <= len(data):
        marker, body = data[place + 1], place + 4
        place += 2 + int.from_bytes(data[place + 2 : body])
        if place > len(data):
            return
        yield marker, data[body:place]
        if marker == _START_OF_SCAN:
            after = _AFTER_SCAN.search(data, place)
            if after is None:
                return
            place = after.start()
