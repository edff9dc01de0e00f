"""Listing packed files, of any format, while somebody waits."""

import pytest

from nbkit.datasets import packed
from nbkit.datasets.find import find
from nbkit.datasets.packed import Packed, list_packed
from nbkit.datasets.shards import shards_missing, use_of
from nbkit.errors import ConfigError
from tests.datasets.odd_layouts import fill
from tests.datasets.odd_packs import PAIR, REC, TFRECORD, tar_bytes


def test_listing_a_long_file_can_be_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "_BETWEEN_CALLS_SECONDS", 0.01)
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
        assert len(listing.classes) == largest + 1
        return
    said = f"labels go up to {largest:,}, but only {distinct:,} of them occur, in "
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
def test_a_word_in_its_path_says_what_a_file_is_for(tmp_path, shard, expected):
    (tmp_path / shard).parent.mkdir(exist_ok=True)
    (tmp_path / shard).write_bytes(b"")

    assert use_of(tmp_path, [shard]) == {shard: "evaluation" if expected else "train"}


@pytest.mark.parametrize(
    ("shards", "missing"),
    [
        (
            [
                "train-00000-of-00002-9ee8.tfrecord",
                "train-00001-of-00002-7a0b.tfrecord",
            ],
            {},
        ),
        (["9ee8-00000-of-00002.tfrecord", "7a0b-00001-of-00002.tfrecord"], {}),
        (["x-00000-of-00002.a.tar", "x-00001-of-00002.b.tar"], {}),
        (["x-0-of-3-9ee8.tar", "x-1-of-3-7a0b.tar"], {"x-*-of-3.tar": 1}),
        (["x-0-of-2.tar", "x-1-of-2.tar", "val/x-0-of-2.tar"], {"val/x-*-of-2.tar": 1}),
        (["x-00001-of-00003"], {"x-*-of-00003": 2}),
    ],
)
def test_names_say_what_is_missing_whatever_hash_is_in_them(shards, missing):
    said = {f"{name} that are not there": count for name, count in missing.items()}

    assert dict(shards_missing(shards)) == said


@pytest.mark.parametrize(
    ("first", "second", "data"),
    [
        ("train-0.tar", "train-1.tar", PAIR),
        ("train.tar", "val.tar", PAIR),
        ("a.rec", "b.rec", REC),
        ("a.tfrecord", "b.tfrecord", TFRECORD),
    ],
)
def test_a_packed_file_that_is_there_twice_is_refused(tmp_path, first, second, data):
    fill(tmp_path, first, second, data=data)
    # A copy of the records alone has no names.
    fill(tmp_path, "a.lst", data=b"0\t0\t0.jpg\n1\t1\t1.jpg\n")

    with pytest.raises(ConfigError) as raised:
        find(str(tmp_path)).read()

    said = f"{first} and {second} have the same images; remove one of them."
    assert said in str(raised.value)


@pytest.mark.parametrize(
    "other",
    [
        [("1.jpg", b"1", 0), ("2.jpg", b"x", 1), ("3.jpg", b"3", 0)],
        [("1.jpg", b"1", 0), ("2.jpg", b"2", 1), ("3.jpg", b"x", 0)],
        [("1.jpg", b"1", 0), ("2.jpg", b"2", 0), ("3.jpg", b"3", 0)],
        [("1.jpg", b"1", 0), ("4.jpg", b"2", 1), ("3.jpg", b"3", 0)],
    ],
    ids=["middle", "last", "label", "name"],
)
def test_packed_files_that_differ_in_one_image_are_both_read(tmp_path, other):
    one = [("1.jpg", b"1", 0), ("2.jpg", b"2", 1), ("3.jpg", b"3", 0)]
    for name, images in (("0.tar", one), ("1.tar", other)):
        members = [
            member
            for image, data, label in images
            for member in ((image, data), (f"{image[0]}.cls", b"%d" % label))
        ]
        fill(tmp_path, name, data=tar_bytes(*members))

    assert len(find(str(tmp_path)).train) == 6


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

    assert list(listing.classes) == classes


@pytest.mark.parametrize("labels", [(0,), (0, 1)])
def test_equal_names_of_a_description_are_numbered(tmp_path, labels):
    (tmp_path / "some.x").write_bytes(b"")
    packed.Description(["x", "x"], len(labels) > 1).write(tmp_path)
    images = [Packed(None, labels, ((0, 1),)), Packed(None, labels[::-1], ((0, 1),))]
    images[1:] = images[1:] if labels[1:] else [Packed(None, (1,), ((0, 1),))]

    listing = list_packed(
        "x", tmp_path, lambda name: name.endswith(".x"), lambda _: iter(images), None
    )

    assert list(listing.classes) == ["x (0)", "x (1)"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["train-0.tar", "holdout-0.tar"], "holdout-0.tar is named for neither"),
        (["labeled/0.tar", "unlabeled/0.tar"], "unlabeled/0.tar is named for neither"),
        (["trainval.tar", "test.tar"], None),
        (["unlabeled-0.tar", "unlabeled-1.tar"], None),
        (["holdout-val.tar", "train.tar"], None),
    ],
)
def test_shards_for_neither_training_nor_evaluation_are_refused(tmp_path, names, said):
    fill(tmp_path, *names)

    if said is None:
        assert "train" in use_of(tmp_path, names).values()
        return
    with pytest.raises(ConfigError, match=said):
        use_of(tmp_path, names)
