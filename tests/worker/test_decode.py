"""The fast decoder: what Pillow shows, but for the last rounding."""

import io
import random
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from PIL import Image

from nbkit.datasets.check import ORIENTATION_TAG, inspect_image
from nbkit.datasets.samples import Decoding
from nbkit.worker import data as package
from nbkit.worker.data import decode, torch_loader
from nbkit.worker.data.augmentation import Crop, evaluation_crop, random_crop
from nbkit.worker.data.decode import decode_crops, decode_window
from nbkit.worker.data.images import decode_crop
from nbkit.worker.data.window import PixelWindow, Turn
from tests.worker.images import picture

LARGEST_ERROR_LEVELS = 2
MEAN_ERROR_LEVELS = 0.3


def photograph(size):
    """Return something with edges, gradients and noise."""
    noise = Image.effect_noise(size, 40).convert("RGB")
    drawn = picture(sum(size)).resize(size, Image.Resampling.BICUBIC)
    return Image.blend(drawn, noise, 0.3)


def encoded(image, suffix="JPEG", **settings):
    file = io.BytesIO()
    image.save(file, suffix, **settings)
    return file.getvalue()


def compare(data, crop, size=48):
    """Return the largest and the mean error of the fast way."""
    decoding = inspect_image(data)
    assert (
        decode_window(data, decoding, PixelWindow.of(decoding, crop, size)) is not None
    )
    (fast,) = decode_crops([(data, decoding, crop)], size)
    assert fast.dtype == torch.uint8
    assert fast.shape == (size, size, 3)
    error = (fast.int() - decode_crop(data, decoding, crop, size).int()).abs()
    return error.max(), error.float().mean()


def crops(width, height, size=48):
    yield evaluation_crop(width, height, size)
    for seed in range(4):
        yield random_crop(width, height, (0.05, 1.0), random.Random(seed))
    yield Crop(0, 0, width, height, flip=False)
    yield Crop(width - 1, height - 1, 1, 1, flip=True)


@pytest.mark.parametrize("size", [(160, 120), (61, 203), (500, 30), (9, 7), (1, 1)])
@pytest.mark.parametrize(
    ("suffix", "settings"),
    [
        ("JPEG", {"quality": 96, "subsampling": 0}),
        ("JPEG", {"quality": 80, "subsampling": 2}),
        ("JPEG", {"progressive": True, "subsampling": 1}),
        ("JPEG", {"keep_rgb": True}),
        ("PNG", {}),
    ],
)
def test_pixels_are_those_of_pillow(size, suffix, settings):
    data = encoded(photograph(size), suffix, **settings)
    assert inspect_image(data).is_plain

    for crop in crops(*size):
        largest, mean = compare(data, crop)
        assert largest <= LARGEST_ERROR_LEVELS
        assert mean < MEAN_ERROR_LEVELS


@pytest.mark.parametrize("suffix", ["JPEG", "PNG"])
def test_grey_becomes_rgb(suffix):
    data = encoded(photograph((160, 120)).convert("L"), suffix)

    for crop in crops(160, 120):
        assert compare(data, crop)[0] <= LARGEST_ERROR_LEVELS


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_is_brought_upright_and_then_mirrored(orientation, flip):
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    data = encoded(photograph((90, 150)), quality=95, exif=exif)
    decoding = inspect_image(data)
    assert decoding.orientation == orientation

    crop = Crop(11, 23, decoding.width - 30, decoding.height - 50, flip)

    assert compare(data, crop)[0] <= LARGEST_ERROR_LEVELS


def test_a_turn_mirrors_before_it_transposes():
    assert Turn.of(1, flip=False) == Turn(False, False, False)
    assert Turn.of(1, flip=True) == Turn(True, False, False)
    assert Turn.of(6, flip=False) == Turn(False, True, True)
    assert Turn.of(6, flip=True) == Turn(False, False, True)


def test_only_what_a_crop_needs_is_decoded():
    decoding = Decoding(1000, 800, 1, is_plain=True)

    larger = PixelWindow.of(decoding, Crop(400, 300, 100, 50, flip=False), 224)
    smaller = PixelWindow.of(decoding, Crop(0, 100, 672, 448, flip=False), 224)

    # One neighbour where it becomes larger; else as many as become one pixel.
    assert (larger.left, larger.top, larger.right, larger.lower) == (399, 299, 501, 351)
    assert (smaller.left, smaller.right) == (0, 675)
    assert (smaller.top, smaller.lower) == (98, 550)
    assert (smaller.part_left, smaller.part_top) == (0, 2)
    assert (smaller.part_right, smaller.part_lower) == (672, 450)


@pytest.mark.parametrize(
    ("data", "is_plain"),
    [
        (encoded(photograph((90, 60)).convert("CMYK")), False),
        (encoded(photograph((90, 60)).convert("RGBA"), "PNG"), False),
        # Pillow passes over what lies between two segments.
        (encoded(photograph((90, 60)))[:20] + bytes(300), True),
        (encoded(photograph((90, 60)))[:900], True),
        (encoded(photograph((60, 90))), True),
        (b"no image at all", True),
        (b"", True),
    ],
    ids=["CMYK", "RGBA", "junk", "cut off", "another size", "no image", "nothing"],
)
def test_what_it_does_not_decode_is_left_to_others_and_harms_none(data, is_plain):
    decoding = Decoding(90, 60, 1, is_plain)
    crop = Crop(3, 5, 70, 40, flip=True)
    good = encoded(photograph((90, 60)), "PNG"), Decoding(90, 60, 1, True), crop

    before, refused, after = decode_crops([good, (data, decoding, crop), good], 48)

    assert refused is None
    assert torch.equal(before, after)
    assert (before.int() - decode_crop(*good, 48).int()).abs().max() <= 2
    assert decode_crops([(data, decoding, crop)], 48) == [None]
    assert decode_crops([], 48) == []


def test_images_decoded_together_are_those_decoded_alone():
    images = []
    for number in range(12):
        data = encoded(photograph((60 + 9 * number, 200 - 7 * number)))
        decoding = inspect_image(data)
        crop = random_crop(
            decoding.width, decoding.height, (0.1, 1.0), random.Random(number)
        )
        images.append((data, decoding, crop))

    for count in (5, 12, 3):
        together = decode_crops(images[:count], 48)
        alone = [decode_crops([image], 48)[0] for image in images[:count]]
        assert all(map(torch.equal, together, alone))


def test_threads_do_not_disturb_each_other():
    images = [encoded(photograph((60 + 9 * n, 200 - 7 * n))) for n in range(16)]

    def decode(data):
        decoding = inspect_image(data)
        crop = evaluation_crop(decoding.width, decoding.height, 48)
        return decode_crops([(data, decoding, crop)], 48)[0]

    alone = list(map(decode, images))
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(decode, images * 8))

    assert all(map(torch.equal, together, alone * 8))


@pytest.mark.parametrize(
    ("name", "stand_in"),
    [("DecodeParams", None), ("Region", lambda *place: 0), ("CodeStream", None)],
)
def test_find_decoder_with_another_interface(monkeypatch, name, stand_in):
    monkeypatch.setattr(decode.nvimgcodec, name, stand_in)

    with ThreadPoolExecutor(1) as pool:  # every thread has a decoder of its own
        found = pool.submit(torch_loader.find_decoder).result()

    assert (found.name, found.decode_crops) == ("Pillow", None)
    assert found.fallback_reason.startswith("TypeError")


def test_find_decoder_of_other_pixels(monkeypatch):
    shown = torch.full((8, 8, 3), 100, dtype=torch.uint8)
    monkeypatch.setattr(decode, "decode_crops", lambda images, size: [shown])

    found = torch_loader.find_decoder()

    assert found.fallback_reason == (
        "RuntimeError: a test image is decoded to a wrong color"
    )


@pytest.fixture
def imported_again(monkeypatch):
    """Let the next import of the decoder run its code again, until the test ends."""
    monkeypatch.delitem(sys.modules, decode.__name__)
    monkeypatch.delattr(package, "decode")


@pytest.mark.usefixtures("imported_again")
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("", "ImportError: cannot import name"),
        ("import ctypes; ctypes.CDLL('libabsent.so.1')", "OSError: libabsent.so.1"),
        ("import absent_part", "ModuleNotFoundError: No module named 'absent_part'"),
    ],
)
def test_find_decoder_that_does_not_load(monkeypatch, tmp_path, line, reason):
    (tmp_path / "cykooz_resizer.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cykooz_resizer")

    found = torch_loader.find_decoder()

    assert (found.name, found.decode_crops) == ("Pillow", None)
    assert found.fallback_reason.startswith(reason)


@pytest.mark.usefixtures("imported_again")
@pytest.mark.parametrize("name", ["cykooz_resizer", "nvidia", "nvidia.nvimgcodec"])
def test_pillow_needs_no_reason_where_the_extra_is_not_installed(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)

    assert torch_loader.find_decoder() == ("Pillow", None, None)


def test_the_decoder_that_is_installed_is_used():
    assert torch_loader.find_decoder()[::2] == ("nvImageCodec", None)
