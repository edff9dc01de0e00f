"""Listing packed files, of any format, while somebody waits."""

from pathlib import Path

import pytest

from nbkit.datasets import packed
from nbkit.datasets.packed import Packed, list_packed
from nbkit.datasets.shards import use_of
from nbkit.errors import ConfigError


def test_listing_a_long_file_can_be_ended(tmp_path):
    (tmp_path / "long.x").write_bytes(b"")

    def read_for_ever(path):
        while True:
            yield Packed(None, (0,), ((0, 1),))

    def stop():
        raise KeyboardInterrupt

    listing = list_packed("x", tmp_path, lambda name: True, read_for_ever, stop)
    with pytest.raises(KeyboardInterrupt):
        listing.read()


@pytest.mark.parametrize(
    ("largest", "distinct", "is_refused"),
    [
        (999, 2, False),  # a part of a larger set
        (200_000, 30_000, False),
        (200_000, 100, True),
        (20_000_000, 2, True),
        (2**62, 2, True),
    ],
)
def test_labels_that_count_something_else_than_classes_are_refused(
    tmp_path, largest, distinct, is_refused
):
    (tmp_path / "some.x").write_bytes(b"")
    labels = [*range(distinct - 1), largest]
    images = [Packed(None, (label,), ((0, 1),)) for label in labels]

    def read(path):
        return iter(images)

    listing = list_packed("x", tmp_path, lambda name: True, read, None)

    if not is_refused:
        assert len(listing.contents.classes) == largest + 1
        return
    said = f"the largest label is {largest:,} \\(limit .* {distinct:,} distinct label"
    with pytest.raises(ConfigError, match=said):
        listing.read()


@pytest.mark.parametrize(
    ("shard", "expected"),
    [
        ("val.rec", True),
        ("val-00001.tar", True),
        ("imagenet2012-validation.tfrecord-00000-of-00064", True),
        ("VALID_3.tar", True),
        ("test/0.tar", True),
        ("train-00000.tar", False),
        ("evaluation-0.tar", True),
        ("dev/0.tar", True),
        ("validate-0.tar", True),
        ("evaluating-0.tar", False),
        ("valley-0.tar", False),
        ("latest-0.tar", False),
    ],
)
def test_a_word_in_its_path_says_what_a_file_is_for(shard, expected):
    assert use_of(Path(), [shard]) == {shard: "evaluation" if expected else "train"}


def test_use_of_test_beside_validation():
    shards = ["train.tar", "val.tar", "test.tar"]

    assert [*use_of(Path(), shards).values()] == ["train", "evaluation", None]


@pytest.mark.parametrize(
    ("texts", "classes"),
    [
        (["x", "x"], ["x (0)", "x (1)"]),
        (["1", None], ["1 (0)", "1 (1)"]),  # whose name is its number
        (["x", "y", "x"], ["x (0)", "y", "x (2)"]),
    ],
)
def test_equal_names_of_classes_are_numbered(tmp_path, texts, classes):
    (tmp_path / "some.x").write_bytes(b"")

    def read(path):
        for label, text in enumerate(texts):
            yield Packed(None, (label,), ((0, 1),), text)

    listing = list_packed("x", tmp_path, lambda name: name.endswith(".x"), read, None)

    assert list(listing.contents.classes) == classes


@pytest.mark.parametrize("labels", [(0,), (0, 1)])
def test_equal_names_of_a_description_are_numbered(tmp_path, labels):
    (tmp_path / "some.x").write_bytes(b"")
    packed.PackDescription(["x", "x"], len(labels) > 1).write(tmp_path)
    images = [Packed(None, labels, ((0, 1),)), Packed(None, labels[::-1], ((0, 1),))]
    images[1:] = images[1:] if labels[1:] else [Packed(None, (1,), ((0, 1),))]

    listing = list_packed(
        "x", tmp_path, lambda name: name.endswith(".x"), lambda _: iter(images), None
    )

    assert list(listing.contents.classes) == ["x (0)", "x (1)"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["train-0.tar", "holdout-0.tar"], "split of holdout-0.tar is neither"),
        (["labeled/0.tar", "unlabeled/0.tar"], "split of unlabeled/0.tar is neither"),
        (["trainval.tar", "test.tar"], None),
        (["unlabeled-0.tar", "unlabeled-1.tar"], None),
        (["holdout-val.tar", "train.tar"], None),
    ],
)
def test_shards_for_neither_training_nor_evaluation_are_refused(names, said):
    if said is None:
        assert "train" in use_of(Path(), names).values()
        return
    with pytest.raises(ConfigError, match=said):
        use_of(Path(), names)
