"""Tar files from elsewhere: which members make an image; damaged files."""

import io
import tarfile

import pytest

from nbkit.datasets.webdataset import list_webdataset
from nbkit.errors import ConfigError
from tests.datasets.images import jpeg, names_of


def write_tar(path, members, format=tarfile.PAX_FORMAT):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=format) as tar:
        for name, data in members:
            if data is None:
                member = tarfile.TarInfo(name)
                member.type = tarfile.DIRTYPE
                tar.addfile(member)
                continue
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize(
    "format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT]
)
def test_neighbours_of_one_stem_make_an_image(tmp_path, format):
    write_tar(
        tmp_path / "train-0.tar",
        [
            ("./a.b/", None),
            ("./a.b/2.JPEG", b"two"),
            ("./a.b/2.cls", b"1\n"),
            ("./a.b/2.json", b'{"label": 9}'),
            ("./a.b/1.cls", b"0"),
            ("./a.b/1.seg.txt", b"not asked for"),
            ("./a.b/1.left.png", b"one"),
        ],
        format,
    )

    listing = list_webdataset(tmp_path)
    samples = listing.open()
    contents = [samples.read(0), samples.read(1)]
    samples.close()

    assert names_of(listing.contents.train) == ["a.b/1.left.png", "a.b/2.JPEG"]
    assert [sample.label for sample in listing.contents.train] == [0, 1]
    assert contents == [b"one", b"two"]
    assert listing.contents.classes == ["0", "1"]


def test_files_for_evaluation_alone_are_no_data_set(tmp_path):
    write_tar(tmp_path / "val.tar", [("2.jpg", b"2"), ("2.cls", b"0")])

    with pytest.raises(ConfigError, match=r"no training images, .* \(webdat"):
        list_webdataset(tmp_path).read()


def test_an_image_without_a_label_is_named(tmp_path):
    write_tar(tmp_path / "0.tar", [("a/1.jpg", b"1"), ("a/1.txt", b"a cat")])

    with pytest.raises(ConfigError, match=r"'a/1' has no label.*Add a .cls file"):
        list_webdataset(tmp_path).read()


@pytest.mark.parametrize(
    ("name", "text"),
    [("1.cls", b"cat"), ("1.cls", b"1.5"), ("1.json", b'{"a": 1}'), ("1.json", b"[]")],
)
def test_a_label_that_is_none_is_named(tmp_path, name, text):
    write_tar(tmp_path / "0.tar", [("1.jpg", b"1"), (name, text)])

    with pytest.raises(ConfigError, match=rf"'{name}' contains b.* neither a class"):
        list_webdataset(tmp_path).read()


def test_two_images_of_one_stem_are_refused(tmp_path):
    write_tar(tmp_path / "0.tar", [("1.jpg", b"1"), ("1.cls", b"0"), ("1.png", b"1")])

    with pytest.raises(ConfigError, match=r"images with the same stem: '1.jpg' and"):
        list_webdataset(tmp_path).read()


@pytest.mark.parametrize("keep", ["half an image", "whole images", "half a header"])
def test_a_tar_file_that_was_cut_off_is_named_with_the_place(tmp_path, keep):
    members = [("1.jpg", jpeg(1)), ("1.cls", b"0"), ("2.jpg", jpeg(2)), ("2.cls", b"1")]
    whole = write_tar(tmp_path / "0.tar", members, tarfile.GNU_FORMAT).read_bytes()
    with tarfile.open(tmp_path / "0.tar") as tar:
        second = tar.getmember("2.jpg")
    length = {
        "half an image": second.offset_data + second.size // 2,
        "whole images": second.offset,
        "half a header": second.offset + 100,
    }[keep]
    (tmp_path / "0.tar").write_bytes(whole[:length])

    with pytest.raises(ConfigError, match=r"0.tar is damaged at byte [\d,]+: "):
        list_webdataset(tmp_path).read()


def test_a_tar_file_with_a_broken_header_is_named_with_the_place(tmp_path):
    members = [("1.jpg", b"1"), ("1.cls", b"0"), ("2.jpg", b"2"), ("2.cls", b"1")]
    data = bytearray(write_tar(tmp_path / "0.tar", members).read_bytes())
    data[2048 + 150] ^= 0xFF  # the checksum of the third member
    (tmp_path / "0.tar").write_bytes(data)

    with pytest.raises(ConfigError, match=r"0.tar is damaged at byte 2,048: neither"):
        list_webdataset(tmp_path).read()


@pytest.mark.parametrize("content", [b"", b"no tar file at all" * 100])
def test_what_is_no_tar_file_is_named(tmp_path, content):
    (tmp_path / "0.tar").write_bytes(content)

    with pytest.raises(ConfigError, match=r"0.tar is damaged at byte 0"):
        list_webdataset(tmp_path).read()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not a valid pack description"),
        ('{"schema": "other/1"}', "schema 'other/1'"),
        (
            '{"schema": "nbkit.pack/1", "classes": ["a"], "is_multi_label": false}',
            "the files have 2 classes or labels, but dataset.json lists 1",
        ),
    ],
)
def test_a_description_that_does_not_fit_is_refused(tmp_path, text, said):
    members = [("1.jpg", b"1"), ("1.cls", b"0"), ("2.jpg", b"2"), ("2.cls", b"1")]
    write_tar(tmp_path / "0.tar", members)
    (tmp_path / "dataset.json").write_text(text)

    with pytest.raises(ConfigError, match=rf"{said}.*[Rr]emove"):
        list_webdataset(tmp_path).read()
