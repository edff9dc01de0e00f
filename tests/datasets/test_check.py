"""What is learnt of an image by looking at it once."""

import warnings

import numpy as np
import pytest
from PIL import Image

from nbkit.datasets.check import ORIENTATION_TAG, UnreadableImageError, inspect_image
from tests.datasets.images import jpeg, picture
from tests.datasets.odd_files import POSTSCRIPT, encoded, odd_files, tiff

ODD = odd_files()


@pytest.mark.parametrize(
    ("kind", "is_plain"),
    [
        ("1 scans of a progressive one", False),
        ("7 scans of a progressive one", False),
        ("progressive", True),
    ],
)
def test_inspect_image_missing_scans_are_not_plain(kind, is_plain):
    assert inspect_image(ODD[f"jpeg {kind}"].data).is_plain == is_plain


@pytest.mark.parametrize(
    ("mode", "format", "is_plain"),
    [
        ("RGB", "JPEG", True),
        ("L", "JPEG", True),
        ("CMYK", "JPEG", False),
        ("RGB", "PNG", True),
        ("RGBA", "PNG", False),
        ("LA", "PNG", False),
        ("P", "PNG", False),
        ("1", "PNG", False),
        ("I;16", "PNG", False),
        ("RGB", "WEBP", False),
        ("RGB", "BMP", False),
        ("RGB", "TIFF", False),
    ],
)
def test_plain_is_what_every_decoder_reads_alike(mode, format, is_plain):
    image = Image.new(mode, (30, 20)) if mode == "I;16" else picture(1).convert(mode)

    looked = inspect_image(encoded(image, format))

    assert looked.is_plain is is_plain
    assert (looked.width, looked.height) == image.size


@pytest.mark.parametrize("orientation", [*range(1, 9), 0, 9, 77])
def test_width_and_height_are_those_that_are_seen(orientation):
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation

    looked = inspect_image(encoded(picture(1, (48, 40)), "JPEG", exif=exif))

    upright = orientation not in range(2, 9)
    assert looked.orientation == (1 if upright else orientation)
    seen = (40, 48) if 4 < orientation < 9 else (48, 40)
    assert (looked.width, looked.height) == seen


@pytest.mark.parametrize(
    "kind", ["a fraction", "a float", "two of them", "no number", "text"]
)
def test_an_orientation_is_an_integer_whatever_the_file_calls_it(kind):
    with warnings.catch_warnings(action="ignore"):
        looked = inspect_image(ODD[f"jpeg orientation as {kind}"].data)

    assert type(looked.orientation) is int
    assert looked.orientation == (1 if kind in ("no number", "text") else 6)


def test_an_image_starts_no_program(tmp_path, monkeypatch):
    started = tmp_path / "started"
    ghostscript = tmp_path / "gs"
    ghostscript.write_text(f"#!/bin/sh\necho yes > {started}\n")
    ghostscript.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    with pytest.raises(UnreadableImageError, match="a format that Pillow"):
        inspect_image(POSTSCRIPT)

    assert not started.exists()


def test_few_levels_of_many_values_are_noticed():
    values = Image.linear_gradient("L").convert("I").point(lambda value: value * 16)
    twelve_bits = values.convert("I;16")

    looked = inspect_image(encoded(twelve_bits, "TIFF"))
    one_value = inspect_image(encoded(Image.new("I;16", (9, 9), 4_000), "TIFF"))

    assert (looked.is_high_bit_depth, looked.is_coarse) == (True, True)
    assert (one_value.is_high_bit_depth, one_value.is_coarse) == (True, False)
    assert not inspect_image(encoded(picture(1).convert("L"), "PNG")).is_high_bit_depth


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the file is empty"),
        (b"no image", "a format that Pillow does not support"),
        (b"II*\0" + bytes(60), "a TIFF file that is damaged or not supported"),
        (b"MM\0*" + bytes(60), "a TIFF file that is damaged"),
        (b"II+\0" + bytes(60), "a TIFF file that is damaged"),
        (b"MM\0+" + bytes(60), "a TIFF file that is damaged"),
        (tiff(np.ones((9, 9)), 3), "a TIFF .* not supported by Pillow"),
        (jpeg(1)[:-60], "truncated"),
        (encoded(picture(1), "PNG")[:-60], "truncated"),
    ],
    ids=[
        "empty",
        "text",
        "II",
        "MM",
        "II+",
        "MM+",
        "floats of 64 bits",
        "half a JPEG",
        "half a PNG",
    ],
)
def test_what_is_no_whole_image_says_why(data, said):
    with pytest.raises(UnreadableImageError, match=said):
        inspect_image(data)
