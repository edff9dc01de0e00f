"""The baseline of global statistics, on images whose labels are known."""

import random
from typing import Any

import pytest
from PIL import Image
from sklearn.metrics import roc_auc_score

from nbkit.datasets.find import find
from nbkit.errors import ConfigError
from nbkit.questions.chexnet.baseline import statistics_baseline


@pytest.fixture
def table(tmp_path):
    """Bright images, images with a dot above or below, and a label none has.

    They are not compressed: the length of a file would tell where the dot is.
    """
    drawn = random.Random(0)
    lines = ["file,split,bright,above,never"]
    for number in range(80):
        bright, above = drawn.randrange(2), drawn.randrange(2)
        image = Image.new("L", (20, 20), 90 + 40 * bright + drawn.randrange(30))
        image.putpixel((drawn.randrange(20), 3 if above else 16), 255)
        image.save(tmp_path / f"{number:02}.bmp")
        split = "train" if number < 50 else "val"
        lines.append(f"{number:02}.bmp,{split},{bright},{above},0")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    return tmp_path / "labels.csv"


def test_it_tells_brightness_and_neither_places_nor_what_it_never_saw(table):
    listing: Any = find(str(table))

    found = statistics_baseline(listing)

    assert list(found.files) == [sample.name for sample in listing.contents.evaluation]
    bright, above = (
        roc_auc_score(
            [sample.label[number] for sample in listing.contents.evaluation],
            found.scores[label],
        )
        for number, label in enumerate(("bright", "above"))
    )
    assert bright > 0.95
    assert 0.2 < above < 0.8
    assert found.scores["never"] is None
    assert (found.train_images, list(found.unreadable)) == (50, [])


def test_images_that_cannot_be_read_are_left_out_and_counted(table):
    listing = find(str(table))
    (table.parent / "00.bmp").write_bytes(b"no image")
    (table.parent / "79.bmp").unlink()

    found = statistics_baseline(listing)

    assert found.train_images == 49
    assert list(found.unreadable) == ["00.bmp", "79.bmp"]
    assert "79.bmp" not in found.files


def test_without_a_readable_training_image_there_is_none(table):
    listing = find(str(table))
    for sample in listing.contents.train:
        (table.parent / sample.name).write_bytes(b"no image")

    with pytest.raises(ConfigError, match="has no readable training image"):
        statistics_baseline(listing)
