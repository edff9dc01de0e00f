"""Look at one image: whether it can be read, and what its decoder has to know.

Pillow decides for everybody: what it decodes to its last row is readable.
"""

from __future__ import annotations

import io

from PIL import Image

from nbkit.datasets.rgb import to_rgb
from nbkit.datasets.samples import Decoding

__all__ = ["ORIENTATION_TAG", "UnreadableImageError", "look_at"]

ORIENTATION_TAG = 0x0112
_TURNED = {5, 6, 7, 8}
"""EXIF orientations in which width and height change places."""
_FIRST_MARKER, _START_OF_SCAN = b"\xc0", b"\xda"


class UnreadableImageError(ValueError):
    """A file is no whole image; the text says why."""


def look_at(data: bytes) -> Decoding:
    """Decode an image once and return what was learnt.

    Parameters
    ----------
    data
        The file.

    Raises
    ------
    UnreadableImageError
        If Pillow cannot decode it to its end.
    """
    if not data:
        message = "the file is empty"
        raise UnreadableImageError(message)
    try:
        with Image.open(io.BytesIO(data)) as image:
            plain = _is_plain(image, data)
            width, height = image.size
            image.load()
            if not plain:
                to_rgb(image)  # as whoever shows it will
            orientation = _orientation(image)
    except Exception as error:  # decoders raise many kinds
        raise UnreadableImageError(_reason(error)) from error
    if orientation in _TURNED:
        width, height = height, width
    return Decoding(width, height, orientation, plain)


def _is_plain(image: Image.Image, data: bytes) -> bool:
    if image.mode not in ("L", "RGB"):
        return False
    if image.format == "JPEG":
        return _is_seamless(data)
    if image.format != "PNG" or "transparency" in image.info:
        return False
    return getattr(image, "n_frames", 1) == 1


def _is_seamless(data: bytes) -> bool:
    """Return whether a JPEG's segments follow one another up to its pixels.

    Pillow looks for the next segment where one ends too early or too late; the parser
    of nvImageCodec, which is DALI's, gives up there.
    """
    place = 2
    while data[place : place + 1] == b"\xff":
        marker = data[place + 1 : place + 2]
        if marker == _START_OF_SCAN:
            return True
        if marker < _FIRST_MARKER:
            return False
        place += 2 + int.from_bytes(data[place + 2 : place + 4])
    return False


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation; damaged EXIF data count as upright."""
    try:
        orientation = image.getexif().get(ORIENTATION_TAG, 1)
    except Exception:  # noqa: BLE001 - the parsers of EXIF data raise many kinds
        return 1
    return orientation if orientation in range(1, 9) else 1


def _reason(error: Exception) -> str:
    if type(error).__name__ == "UnidentifiedImageError":
        return "not a format that Pillow knows"
    text = str(error) or type(error).__name__
    return text.splitlines()[0]
