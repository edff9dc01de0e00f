"""Check of one image: whether it is readable, and what its decoder needs.

Pillow decides for all loaders: what it decodes to its last row is readable.
"""

from __future__ import annotations

import re
import zlib
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

_PNG_START = 8
_PNG_CRITICAL = {b"IHDR", b"PLTE", b"IDAT", b"IEND"}

_FIRST_MARKER, _START_OF_SCAN = 0xC0, 0xDA
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SEQUENTIAL, _PROGRESSIVE = {0xC0, 0xC1, 0xC9}, {0xC2, 0xCA}
"""By Huffman or arithmetic coding; all others are lossless or hierarchical."""
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
        _raise_machine_error(error)
        text = str(error) or type(error).__name__
        raise UnreadableImageError(text.splitlines()[0]) from error
    if orientation in _TURNED:
        width, height = height, width
    return Decoding(width, height, orientation, plain, high_bit_depth, coarse)


def _raise_machine_error(error: Exception) -> None:
    if isinstance(error, OSError):
        if error.errno is not None:
            raise error
        if str(error).startswith(_OUT_OF_MEMORY):
            raise MemoryError from error


def _is_plain(image: Image.Image, data: bytes) -> bool:
    if image.mode not in ("L", "RGB"):
        return False
    if image.format == "JPEG":
        return is_whole_jpeg(data)
    if image.format != "PNG" or "transparency" in image.info:
        return False
    return getattr(image, "n_frames", 1) == 1 and is_whole_png(data)


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


# Every decoder reads a whole file as Pillow does, which makes do with less than the
# decoders of nvImageCodec, which are DALI's.


def is_whole_png(data: bytes) -> bool:
    """Return whether all chunks of a PNG are complete and known."""
    # https://www.w3.org/TR/png-3/#5Chunk-layout
    view, place = memoryview(data), _PNG_START
    while place + 12 <= len(data):
        kind = data[place + 4 : place + 8]
        end = place + 12 + int.from_bytes(view[place : place + 4])
        checksum = int.from_bytes(view[end - 4 : end])
        if end > len(data) or zlib.crc32(view[place + 4 : end - 4]) != checksum:
            return False
        if kind not in _PNG_CRITICAL and kind[:1].isupper():
            return False
        if kind == b"IEND":
            return True
        place = end
    return False


def is_whole_jpeg(data: bytes) -> bool:
    """Return whether a JPEG's segments are contiguous and no scan is missing."""
    # Pillow looks for the next segment where one ends too early or too late. Where
    # scans of a progressive JPEG are missing, libjpeg smooths what is decoded: a part
    # of it, decoded alone, has other pixels.
    # https://www.w3.org/Graphics/JPEG/itu-t81.pdf, annexes B and G
    is_progressive, missing = False, set[tuple[int, int]]()
    for marker, body in _segments(data):
        if marker < _FIRST_MARKER:
            return False
        if marker in _FRAMES:
            if marker not in _SEQUENTIAL | _PROGRESSIVE:
                return False
            is_progressive = marker in _PROGRESSIVE
            missing = {(part, number) for part in body[6::3] for number in range(64)}
        elif marker == _START_OF_SCAN:
            if not is_progressive:
                return True
            missing -= _completed(body)
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


def _completed(scan: bytes) -> set[tuple[int, int]]:
    """Return the components and coefficients that have their last bit by a scan."""
    if len(scan) < 6 or scan[-1] & 0x0F:
        return set()
    numbers = range(scan[-3], scan[-2] + 1)
    return {(part, number) for part in scan[1:-3:2] for number in numbers}
