"""RecordIO files from elsewhere: their records, labels and lists; damaged files."""

import struct

import pytest

from nbkit.datasets.recordio import RecordIOWriter, list_recordio
from nbkit.datasets.samples import ImageSample
from nbkit.errors import ConfigError
from tests.datasets.images import jpeg
from tests.datasets.records import MAGIC, part
from tests.datasets.records import record_header as header

MAGIC_BYTES = struct.pack("<I", MAGIC)


def read_back(root):
    listing = list_recordio(root)
    samples = listing.open()
    try:
        return [
            (sample.name, sample.label, samples.read(number))
            for number, sample in enumerate(listing.contents.train)
        ]
    finally:
        samples.close()


def test_a_file_without_a_list_names_its_images_by_number(tmp_path):
    (tmp_path / "faces.rec").write_bytes(
        part(header(1, 7) + b"abc") + part(header(0, 9) + b"defg")
    )

    assert read_back(tmp_path) == [
        ("faces.rec/0", 1, b"abc"),
        ("faces.rec/1", 0, b"defg"),
    ]
    assert list_recordio(tmp_path).contents.classes == ["0", "1"]


def test_a_list_names_images_by_their_number_in_any_order(tmp_path):
    (tmp_path / "x.rec").write_bytes(
        part(header(1, 7) + b"abc") + part(header(0, 9) + b"defg")
    )
    (tmp_path / "x.lst").write_text("9\t0.000000\tcats/1.jpg\n7\t1.000000\ta dog.jpg\n")

    assert read_back(tmp_path) == [("a dog.jpg", 1, b"abc"), ("cats/1.jpg", 0, b"defg")]
    assert "x.lst" in list_recordio(tmp_path).described_by


def test_several_labels_follow_the_header(tmp_path):
    labels = struct.pack("<3f", 0, 1, 1)
    (tmp_path / "x.rec").write_bytes(part(header(0, 0, flag=3) + labels + b"abc"))

    assert read_back(tmp_path) == [("x.rec/0", (0, 1, 1), b"abc")]
    assert list_recordio(tmp_path).contents.is_multi_label


@pytest.mark.parametrize(
    "image",
    [
        b"abcd" + MAGIC_BYTES + b"efg",
        MAGIC_BYTES + b"abc",
        b"abcd" + MAGIC_BYTES,
        b"abcd" + MAGIC_BYTES + MAGIC_BYTES + b"efghi" + MAGIC_BYTES,
        b"abc" + MAGIC_BYTES + b"defgh" + MAGIC_BYTES,
        MAGIC_BYTES[1:] + MAGIC_BYTES + MAGIC_BYTES[:3],
    ],
)
def test_images_that_hold_the_magic_number_come_back_whole(tmp_path, image):
    writer = RecordIOWriter(tmp_path / "x.rec")
    for number, data in enumerate((image, b"next")):
        writer.add(number, ImageSample(f"{number}.jpg", 1 - number, None), data)
    writer.close()

    content = (tmp_path / "x.rec").read_bytes()
    words = [n for n in range(0, len(content), 4) if content[n : n + 4] == MAGIC_BYTES]
    cuts = sum(image[n : n + 4] == MAGIC_BYTES for n in range(0, len(image), 4))
    assert len(words) == 2 + cuts
    assert read_back(tmp_path) == [("0.jpg", 1, image), ("1.jpg", 0, b"next")]


def test_a_record_cut_within_its_labels_is_read(tmp_path):
    # What another writer makes of an image whose number is the magic number.
    head = header(1, MAGIC)
    first, rest = head.split(MAGIC_BYTES)
    other = part(header(0, 1) + b"x")
    (tmp_path / "x.rec").write_bytes(part(first, 1) + part(rest + b"abc", 3) + other)
    (tmp_path / "x.lst").write_text(f"{MAGIC}\t1\tdog.jpg\n")

    assert read_back(tmp_path) == [("dog.jpg", 1, b"abc"), ("x.rec/1", 0, b"x")]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[:-1], "at byte 0: the file ends inside a record"),
        (lambda data: data + data[:6], r"at byte \d+: the file ends inside a record"),
        (lambda data: b"?" + data[1:], "at byte 0: 0xced7233f instead of 0xced7230a"),
        (lambda data: part(data, 2), "at byte 0: unexpected part 2 of a record"),
        (
            lambda data: part(b"abcd", 1) + data,
            "at byte 12: unexpected part 0 of a record",
        ),
        (lambda data: part(b"short"), "at byte 0: a record that is too short for an"),
        (
            lambda data: part(header(0, 0, 9)),
            r"at byte 0: .* too short for its labels \(9\)",
        ),
    ],
)
def test_a_damaged_file_is_named_with_the_place(tmp_path, damage, said):
    whole = part(header(1) + jpeg(1))
    whole += bytes(-len(whole) % 4)
    (tmp_path / "x.rec").write_bytes(damage(whole))

    with pytest.raises(ConfigError, match=rf"x.rec is damaged {said}"):
        list_recordio(tmp_path).read()


@pytest.mark.parametrize(
    ("label", "said"),
    [(0.5, r"label \[0.5\], which"), (float("nan"), "label"), (-1, "from -1 to -1")],
)
def test_a_label_that_is_no_class_is_refused(tmp_path, label, said):
    (tmp_path / "x.rec").write_bytes(part(header(label) + b"abc"))

    with pytest.raises(ConfigError, match=said):
        list_recordio(tmp_path).read()


def test_images_with_different_numbers_of_labels_are_refused(tmp_path):
    two = header(0, 0, flag=2) + struct.pack("<2f", 0, 1)
    (tmp_path / "x.rec").write_bytes(part(header(1) + b"abc") + part(two + b"abc"))

    with pytest.raises(ConfigError, match=r"1 to 2 labels \(values from 0 to 1\)"):
        list_recordio(tmp_path).read()


def test_a_list_that_is_none_is_refused(tmp_path):
    (tmp_path / "x.rec").write_bytes(part(header(1) + b"abc"))
    (tmp_path / "x.lst").write_text("0\t1\tdog.jpg\nhello\n")

    with pytest.raises(ConfigError, match=r"line 2 is 'hello'\. Expected an index"):
        list_recordio(tmp_path).read()
