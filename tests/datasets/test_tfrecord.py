"""TFRecord files from elsewhere: features, names and labels; damaged files."""

import struct

import pytest

from nbkit.datasets.tfrecord import is_tfrecord, list_tfrecord
from nbkit.errors import ConfigError
from tests.datasets.images import names_of
from tests.datasets.records import (
    bytes_list,
    example,
    field,
    packed_integers,
    record,
    varint,
)


def single_integers(*values):
    # As writers do that know nothing of packed fields.
    return field(3, b"".join(b"\x08" + varint(value) for value in values))


def imagenet(image, label, name):
    """Return a record with the features of TensorFlow's own ImageNet."""
    return record(
        example(
            {
                "image/class/synset": bytes_list(b"n01440764"),
                "image/encoded": bytes_list(image),
                "image/height": packed_integers(375),
                "image/object/bbox/xmin": field(2, field(1, struct.pack("<f", 0.5))),
                "image/class/label": packed_integers(label),
                "image/class/text": bytes_list(b"tench, Tinca tinca"),
                "image/filename": bytes_list(name),
            }
        )
    )


def read_back(root):
    listing = list_tfrecord(root)
    samples = listing.open()
    try:
        return [
            (sample.name, sample.label, samples.read(number))
            for number, sample in enumerate(listing.contents.train)
        ]
    finally:
        samples.close()


def test_imagenet_as_tensorflow_writes_it_is_read(tmp_path):
    big = bytes(range(256)) * 40
    (tmp_path / "train-00000-of-00002").write_bytes(
        imagenet(big, 2, b"n2.JPEG") + imagenet(b"abc", 1, b"n1.JPEG")
    )
    (tmp_path / "train-00001-of-00002").write_bytes(imagenet(b"x", 1, b"n0.JPEG"))
    (tmp_path / "validation-00000-of-00001").write_bytes(imagenet(b"v", 2, b"v.JPEG"))

    listing = list_tfrecord(tmp_path)

    assert read_back(tmp_path) == [
        ("n0.JPEG", 1, b"x"),
        ("n1.JPEG", 1, b"abc"),
        ("n2.JPEG", 2, big),
    ]
    assert names_of(listing.contents.evaluation) == ["v.JPEG"]
    name = "tench, Tinca tinca"
    assert listing.contents.classes == ["0", f"{name} (1)", f"{name} (2)"]


def test_the_names_of_tensorflow_datasets_are_known_too(tmp_path):
    messages = [
        example(
            {
                "file_name": bytes_list(name),
                "image": bytes_list(b"abc"),
                "label": single_integers(label),
            }
        )
        for name, label in ((b"1.JPEG", 300), (b"2.JPEG", 2))
    ]
    (tmp_path / "imagenet2012-train.tfrecord-00000-of-00001").write_bytes(
        b"".join(map(record, messages))
    )

    assert read_back(tmp_path) == [("1.JPEG", 300, b"abc"), ("2.JPEG", 2, b"abc")]


@pytest.mark.parametrize("write", [packed_integers, single_integers])
def test_several_integers_are_several_labels(tmp_path, write):
    features = {"image/encoded": bytes_list(b"a"), "image/class/label": write(0, 1, 1)}
    (tmp_path / "x.tfrecord").write_bytes(record(example(features)))

    assert read_back(tmp_path) == [("x.tfrecord/0", (0, 1, 1), b"a")]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("a.tfrecord", True),
        ("a.tfrecords", True),
        ("train00-1338.tfrec", True),
        ("a.tfrecord-00000-of-00010", True),
        ("train-00000-of-01024", True),
        ("a.tfrecord.gz", False),
        ("train-00000.idx", False),
        ("image-1-of-2.jpg", False),
    ],
)
def test_a_tfrecord_file_is_known_by_its_name(name, is_one):
    assert is_tfrecord(name) is is_one


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-1], r"byte 0: the file ends inside a record"),
        (lambda data: data + data[:5], r"byte \d+: the file ends inside a record"),
        (lambda data: b"?" + data[1:], "byte 0: a length that does not match its"),
    ],
)
def test_a_damaged_file_is_named_with_the_place(tmp_path, damage, said):
    (tmp_path / "x.tfrecord").write_bytes(damage(imagenet(b"abc", 1, b"1.JPEG")))

    with pytest.raises(ConfigError, match=rf"x.tfrecord is damaged at {said}"):
        list_tfrecord(tmp_path).read()


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"\xff" * 20, "not an integer of a protocol buffer at byte 12"),
        (b"\x0f", "not a field of a protocol buffer at byte 12"),
        (b"\x0a\x7f", "a field that is longer than its message at byte 12"),
    ],
)
def test_a_message_that_is_none_is_refused_with_its_place(tmp_path, message, said):
    (tmp_path / "x.tfrecord").write_bytes(record(message))

    with pytest.raises(ConfigError, match=rf"or not a tf.train.Example \({said}\)"):
        list_tfrecord(tmp_path).read()


@pytest.mark.parametrize(
    ("features", "said"),
    [
        (
            {"image/encoded": bytes_list(b"a")},
            "no feature image/class/label or label, only im",
        ),
        ({"x": bytes_list(b"a")}, "no feature image/encoded or image, only x"),
        ({}, r"byte 0 is damaged or not a tf.train.Example \(no feature at byte 12\)"),
        (
            {"image": bytes_list(b"a", b"b"), "label": packed_integers(1)},
            r"byte 0 has 2 images in its feature 'image', not 1\.",
        ),
        (
            {"image": bytes_list(b"a"), "label": bytes_list(b"cat")},
            "byte 0 has no integer in its feature 'label', which holds the class index",
        ),
        (
            {"image": bytes_list(b"a"), "label": packed_integers(-1)},
            "values from -1 to -1",
        ),
    ],
)
def test_a_message_that_is_no_labelled_image_is_refused(tmp_path, features, said):
    (tmp_path / "x.tfrecord").write_bytes(record(example(features)))

    with pytest.raises(ConfigError, match=said):
        list_tfrecord(tmp_path).read()
