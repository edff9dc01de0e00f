"""NVIDIA DALI's own readers take packs by their indexes, with the same labels."""

import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import numpy
import pytest
from nvidia.dali import fn, tfrecord
from nvidia.dali.pipeline import pipeline_def

from nbkit.datasets.find import find
from nbkit.datasets.recordio import RecordIOWriter
from nbkit.datasets.samples import ImageSample
from tests.datasets.images import images_of, write_folder


@pytest.fixture
def plain_folder(tmp_path):
    """Images without spaces in their names."""
    return write_folder(tmp_path / "plain", ("apple", "pear", "cherry"), space="_")


def read_all(reader, count):
    """Return the bytes and the label of every image that a reader gives."""

    @pipeline_def(batch_size=count, num_threads=1, device_id=None)
    def pipeline():
        return tuple(reader())

    built = pipeline()
    built.build()
    images, labels = built.run()
    return {
        (
            numpy.array(images.at(number)).tobytes(),
            tuple(numpy.array(labels.at(number)).ravel().tolist()),
        )
        for number in range(count)
    }


def expected(data, split):
    return {
        (content, label if isinstance(label, tuple) else (label,))
        for part, _, label, content in images_of(find(str(data)))
        if part == split
    }


def webdataset(pack, name, extension):
    shards = sorted(pack.glob(f"{name}-*.tar"))

    def reader():
        return fn.readers.webdataset(
            paths=[str(path) for path in shards],
            index_paths=[str(path.with_suffix(".idx")) for path in shards],
            ext=["jpeg;png", extension],
            case_sensitive_extensions=False,
        )

    return reader


@pytest.mark.parametrize("folder_name", ["plain_folder", "folder"])
@pytest.mark.parametrize(
    ("split", "name", "count"), [("train", "train", 12), ("evaluation", "val", 6)]
)
def test_webdataset(request, packed, folder_name, split, name, count):
    data = request.getfixturevalue(folder_name)
    pack = packed(data, "webdataset")

    found = read_all(webdataset(pack, name, "cls"), count)

    as_numbers = {(image, (int(bytes(digits)),)) for image, digits in found}
    assert as_numbers == expected(data, split)


@pytest.mark.parametrize(
    ("format", "name", "tool"),
    [
        ("webdataset", "train-00000.tar", "wds2idx"),
        ("tfrecord", "train-00000.tfrecord", "tfrecord2idx"),
    ],
)
def test_an_index_is_what_its_own_tool_writes(
    plain_folder, packed, tmp_path, format, name, tool
):
    path = packed(plain_folder, format) / name
    program = Path(sysconfig.get_path("scripts")) / tool

    subprocess.run([program, path, tmp_path / "idx"], check=True, capture_output=True)

    assert path.with_suffix(".idx").read_text() == (tmp_path / "idx").read_text()


def test_a_webdataset_index_has_no_names_where_spaces_would_break_it(folder, packed):
    index = packed(folder, "webdataset") / "train-00000.idx"

    first, *rows = index.read_text().splitlines()

    assert first == "v1.1 12"
    assert {len(row.split(" ")) for row in rows} == {6}


def test_recordio(folder, packed):
    pack = packed(folder, "recordio")

    for split, name, count in (("train", "train", 12), ("evaluation", "val", 6)):
        found = read_all(
            lambda name=name: fn.readers.mxnet(
                path=[str(pack / f"{name}.rec")], index_path=[str(pack / f"{name}.idx")]
            ),
            count,
        )
        assert found == expected(folder, split)


def test_recordio_of_images_that_hold_its_magic_number(tmp_path):
    magic = (0xCED7230A).to_bytes(4, "little")
    images = {b"abcd" + magic + b"efg": 3, magic + magic + b"hi": 4}
    writer = RecordIOWriter(tmp_path / "x.rec")
    for number, (image, label) in enumerate(images.items()):
        writer.add(number, ImageSample("1.jpg", label, None), image)
    writer.close()

    found = read_all(
        lambda: fn.readers.mxnet(
            path=[str(tmp_path / "x.rec")], index_path=[str(tmp_path / "x.idx")]
        ),
        2,
    )

    assert found == {(image, (label,)) for image, label in images.items()}


def test_recordio_of_several_labels(table, packed):
    pack = packed(table, "recordio")

    found = read_all(
        lambda: fn.readers.mxnet(
            path=[str(pack / "train.rec")], index_path=[str(pack / "train.idx")]
        ),
        2,
    )

    assert found == expected(table, "train")


@pytest.mark.parametrize(("source", "labels"), [("folder", 1), ("table", 2)])
def test_tfrecord(request, packed, source, labels):
    data = request.getfixturevalue(source)
    pack = packed(data, "tfrecord")
    wanted = expected(data, "train")

    def reader():
        features: Any = fn.readers.tfrecord(
            path=[str(pack / "train-00000.tfrecord")],
            index_path=[str(pack / "train-00000.idx")],
            features={
                "image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
                "image/class/label": tfrecord.FixedLenFeature(
                    [labels], tfrecord.int64, 0
                ),
            },
        )
        return features["image/encoded"], features["image/class/label"]

    assert read_all(reader, len(wanted)) == wanted


def test_its_reader_of_folders_counts_classes_alike(folder):
    found = read_all(lambda: fn.readers.file(file_root=str(folder / "train")), 12)

    assert found == expected(folder, "train")
