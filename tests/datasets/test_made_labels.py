"""The made set of several labels: what is planted in it, and what is not."""

import os
import random
import statistics
from pathlib import Path

import pytest
from PIL import Image, ImageStat

from nbkit.datasets.find import find
from nbkit.datasets.image_statistics import image_statistics
from nbkit.questions.chexnet.baseline import statistics_baseline
from nbkit.statistics.auroc import area_under_roc

BORDER_MEAN = 8


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The set, in a cache of this file's tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield find("synthetic-multilabel")


def brightness(listing, sample):
    with Image.open(listing.root / sample.name) as image:
        return ImageStat.Stat(image).mean[0]


def test_no_patient_is_on_both_sides_and_one_label_has_no_positive(made):
    sides = [
        {made.contents.patients[sample.name] for sample in samples}
        for samples in (made.contents.train, made.contents.evaluation)
    ]

    assert [len(side) for side in sides] == [96, 24]
    assert not sides[0] & sides[1]
    assert list(made.contents.classes) == ["bright", "upper", "coin", "rare"]
    labels = [sample.label for sample in made.contents.evaluation]
    positives = [sum(column) for column in zip(*labels, strict=True)]
    assert positives[-1] == 0
    assert all(20 < count < 76 for count in positives[:-1])
    assert sum(sample.label[3] for sample in made.contents.train) == 2


def test_brightness_tells_one_label_and_not_the_place_of_the_square(made):
    means = {
        (label, has): statistics.fmean(
            brightness(made, sample)
            for sample in made.contents.train
            if sample.label[label] == has
        )
        for label in (0, 1)
        for has in (0, 1)
    }

    assert means[0, 1] - means[0, 0] > 12
    assert abs(means[1, 1] - means[1, 0]) < 4


def test_global_statistics_tell_the_brightness_and_not_the_place(made):
    found = statistics_baseline(made)
    areas = {
        label: area_under_roc(
            found.scores[label],
            [sample.label[number] for sample in made.contents.evaluation],
            [made.contents.patients[name] for name in found.files],
        )
        for number, label in enumerate(("bright", "upper", "coin"))
    }

    assert areas["bright"].value > 0.7
    for label in ("upper", "coin"):
        interval = areas[label].interval()
        assert interval is not None
        assert interval[0] < 0.5 < interval[1]


def test_the_square_stands_as_far_from_the_border_above_as_below(made):
    means = {
        upper: statistics.fmean(
            image_statistics((made.root / sample.name).read_bytes())[BORDER_MEAN]
            for sample in made.contents.train
            if sample.label[1] == upper
        )
        for upper in (0, 1)
    }

    assert abs(means[1] - means[0]) < 0.01


def test_it_is_made_once_and_the_same_again(made):
    cache = Path(os.environ["XDG_CACHE_HOME"], "nbkit")
    before = {path: path.stat().st_mtime_ns for path in made.root.rglob("*")}

    again = find("synthetic-multilabel")

    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert again.fingerprint() == made.fingerprint()
    assert [path.name for path in cache.iterdir()] == ["synthetic-multilabel-2"]


def test_statistics_are_of_the_whole_image_and_not_of_places(tmp_path):
    noise = bytes(random.Random(0).choices(range(256), k=300 * 200))
    image = Image.frombytes("L", (300, 200), noise)
    image.save(tmp_path / "one.png")
    image.transpose(Image.Transpose.ROTATE_180).save(tmp_path / "other.png")
    one, other = (
        image_statistics(path.read_bytes())
        for path in (tmp_path / "one.png", tmp_path / "other.png")
    )

    assert one.pop() > 0
    other.pop()
    # Of an image that is made smaller, a percentile may be the next grey.
    assert one == pytest.approx(other, abs=1.01 / 255)
    mean, _, *percentiles = one[:7]
    assert 0.4 < mean < 0.6
    assert percentiles == sorted(set(percentiles))


def test_a_flat_image_has_no_spread_and_no_sharpness(tmp_path):
    Image.new("RGB", (1, 9), (255, 255, 255)).save(tmp_path / "white.png")

    values = image_statistics((tmp_path / "white.png").read_bytes())
    mean, spread, *_, sharpness, _, dark_share, saturated_share, _ = values
    assert (mean, spread, sharpness) == (1, 0, 0)
    assert (dark_share, saturated_share) == (0, 1)
