"""Which part of an image is shown."""

import pytest
import torch
from PIL import Image, ImageOps

from nbkit.config import ExperimentConfig
from nbkit.datasets.check import inspect_image
from nbkit.datasets.samples import Decoding
from nbkit.worker.data.augmentation import Augmentation, Crop, evaluation_crop
from nbkit.worker.data.images import decode_crop
from tests.worker.images import picture

WIDE = Decoding(500, 375, 1, is_plain=True)


def crops(epoch=0, decoding=WIDE, count=300, **fields):
    augmentation = Augmentation.of(ExperimentConfig(**fields))
    return [augmentation.crop(decoding, epoch, index) for index in range(count)]


def test_crops_follow_seed_epoch_and_index_alone():
    first = crops()

    assert crops() == first
    assert crops(loader="naive", gpus=4, loader_config={"num_workers": 3}) == first
    assert len(set(first)) > 290
    for other in (crops(seed=1), crops(epoch=1)):
        assert sum(one == two for one, two in zip(first, other, strict=True)) < 5


@pytest.mark.parametrize("area", [(0.08, 1.0), (0.3, 0.4), (1.0, 1.0)])
@pytest.mark.parametrize("size", [(500, 375), (375, 500), (2000, 30), (1, 1), (7, 300)])
def test_crops_lie_within_the_image_and_the_area_that_was_asked_for(size, area):
    width, height = size
    seen = crops(
        decoding=Decoding(width, height, 1, is_plain=True),
        crop_area_min=area[0],
        crop_area_max=area[1],
    )

    for crop in seen:
        assert crop.left >= 0
        assert crop.left + crop.width <= width
        assert crop.top >= 0
        assert crop.top + crop.height <= height
        assert crop.width >= 1
        assert crop.height >= 1
    if size in ((500, 375), (375, 500)) and area[1] < 1:
        shares = [crop.width * crop.height / (width * height) for crop in seen]
        assert area[0] * 0.98 < min(shares) < max(shares) < area[1] * 1.02
    assert 90 < sum(crop.flip for crop in seen) < 210


def test_an_evaluation_shows_the_middle_and_mirrors_nothing():
    crop = evaluation_crop(512, 256, 224)

    assert crop == Crop(144, 16, 224, 224, flip=False)
    assert crops(epoch=None, count=1)[0].flip is False


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_crop_shows_the_same_pixels_however_the_file_stores_them(
    tmp_path, orientation
):
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture(5, (60, 44)).save(tmp_path / "stored.png", exif=exif)
    data = (tmp_path / "stored.png").read_bytes()
    with Image.open(tmp_path / "stored.png") as stored:
        upright = ImageOps.exif_transpose(stored).convert("RGB")
    decoding = inspect_image(data)
    assert (decoding.width, decoding.height) == upright.size

    for flip in (False, True):
        crop = Crop(5, 9, 32, 24, flip=flip)
        expected = upright.resize(
            (16, 16), Image.Resampling.BILINEAR, box=(5, 9, 37, 33)
        )
        if flip:
            expected = ImageOps.mirror(expected)
        reference = torch.frombuffer(bytearray(expected.tobytes()), dtype=torch.uint8)
        pixels = decode_crop(data, decoding, crop, 16)
        # Rows before columns or the other way round: rounding may differ by one.
        difference = pixels.int() - reference.view(16, 16, 3).int()
        assert difference.abs().max() <= 1
