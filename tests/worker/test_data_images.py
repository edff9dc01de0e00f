"""How images look: layout, colours, crops; and those nobody can read."""

import pytest
import torch
from PIL import Image

from nbkit.errors import ConfigError
from tests.worker.images import (
    CLASSES,
    DEVIATION,
    MEAN,
    cropped,
    evaluated,
    picture,
    same,
)

# torch warns of more loading processes than CPUs; some tests want several anyway.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
def test_batches_are_normalised_and_in_the_configured_layout(flat, opened, layout):
    one = opened(flat, 4, memory_format=layout)

    images, labels = next(iter(one.train_batches(0)))

    bytes_again = (images * DEVIATION + MEAN) * 255
    assert images.dtype == torch.float32
    assert images.shape == (4, 3, 32, 32)
    assert labels.dtype == torch.int64
    assert torch.allclose(bytes_again, bytes_again.round(), atol=1e-3)
    assert bytes_again.max() > 128
    expected = getattr(torch, layout.replace("channels_first", "contiguous_format"))
    assert images.is_contiguous(memory_format=expected)


def test_both_layouts_hold_the_same_images(flat, opened):
    last = opened(flat, memory_format="channels_last").train_batches(0)
    first = opened(flat, memory_format="channels_first").train_batches(0)

    assert same(last, first)


@pytest.mark.parametrize("size", [(48, 40), (100, 30), (300, 400)])
def test_evaluation_shows_what_resizing_and_cutting_shows(tmp_path, size):
    image = picture(3, size)
    image.save(tmp_path / "image.png")
    shorter = round(56 * 256 / 224)
    scale = shorter / min(size)
    width, height = round(size[0] * scale), round(size[1] * scale)
    left, top = (width - 56) / 2, (height - 56) / 2
    expected = image.resize((width, height), Image.Resampling.BILINEAR)
    expected = expected.crop((left, top, left + 56, top + 56))

    pixels = evaluated((tmp_path / "image.png").read_bytes(), 56)

    reference = torch.frombuffer(bytearray(expected.tobytes()), dtype=torch.uint8)
    difference = pixels.float() - reference.view(56, 56, 3)
    assert difference.abs().mean() < 2.5


def gradient(size):
    """Return an image whose red and green tell a pixel's place."""
    width, height = size
    red = Image.linear_gradient("L").rotate(90).resize(size)
    green = Image.linear_gradient("L").resize((width, height))
    return Image.merge("RGB", (red, green, Image.new("L", size)))


def crops(tmp_path, size, area, suffix="png"):
    """Return the width and height of many random crops, as shares, and their flips."""
    path = tmp_path / f"gradient.{suffix}"
    gradient(size).save(path)
    for seed in range(200):
        pixels = cropped(path.read_bytes(), 16, area, seed).float()
        # Rotated by 90 degrees the gradient falls from left to right.
        across = (pixels[:, 0, 0] - pixels[:, -1, 0]).mean().item()
        down = (pixels[-1, :, 1] - pixels[0, :, 1]).mean().item()
        yield abs(across) / 240, down / 240, across < 0


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_random_crops_keep_to_area_and_aspect_and_flip_half_of_the_time(
    tmp_path, suffix
):
    seen = list(crops(tmp_path, (256, 256), (0.1, 0.5), suffix))

    areas = [width * height for width, height, _ in seen]
    assert 0.06 < min(areas) < 0.15
    assert 0.42 < max(areas) < 0.56
    assert all(0.6 < width / height < 1.6 for width, height, _ in seen)
    assert 70 < sum(flipped for *_, flipped in seen) < 130


def test_the_whole_image_is_taken_where_it_is_asked_for(tmp_path):
    seen = list(crops(tmp_path, (256, 256), (1.0, 1.0)))

    # At full area only the image's own aspect fits; else the middle, which is all.
    assert all(width > 0.95 and height > 0.95 for width, height, _ in seen)


def test_a_very_long_image_is_cropped_in_its_middle(tmp_path):
    Image.new("RGB", (600, 20), (10, 20, 30)).save(tmp_path / "long.png")

    pixels = cropped((tmp_path / "long.png").read_bytes(), 16, (0.9, 1.0), seed=0)

    assert pixels.shape == (16, 16, 3)
    assert pixels[8, 8].tolist() == [10, 20, 30]


def test_evaluation_without_evaluation_images_says_where_they_go(flat, opened):
    assert list(opened(flat).evaluation_batches()) == []

    with pytest.raises(ConfigError, match=r"no evaluation images.*val/<class>/"):
        opened(flat, evaluation_period_epochs=1)


def test_fewer_outputs_than_classes_are_refused(flat, opened):
    assert opened(flat, num_classes=CLASSES).num_classes == CLASSES

    with pytest.raises(ConfigError, match="num_classes=9 is below the 10"):
        opened(flat, num_classes=CLASSES - 1)


@pytest.mark.parametrize(
    ("loader", "workers"), [("torch", 0), ("torch", 1), ("naive", 0)]
)
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("garbage", "a format that Pillow does not support"),
        ("truncated", r"size changed from [\d,]+ to [\d,]+ bytes"),
        ("another size", r"size changed from 48 x 40 to 30 x 20 pixels"),
        ("gone", "No such file"),
    ],
)
def test_an_image_that_fails_after_it_was_looked_at_is_named(
    flat, opened, loader, workers, broken, said
):
    one = opened(flat, loader=loader, num_workers=workers)
    path = flat / "class 04" / "0.JPEG"
    before = path.read_bytes()
    if broken == "gone":
        path.unlink()
    elif broken == "truncated":
        path.write_bytes(before[:-50])
    elif broken == "garbage":
        path.write_bytes(b"x" * len(before))
    else:
        Image.new("RGB", (30, 20)).save(path)
        path.write_bytes(path.read_bytes().ljust(len(before), b"\0"))
        assert path.stat().st_size == len(before)

    with pytest.raises(
        ConfigError, match=f"class 04/0.JPEG is no longer a readable.*{said}"
    ):
        list(one.train_batches(0))
