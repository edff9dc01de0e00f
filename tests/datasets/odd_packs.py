"""Packs as people have them, made by code, and what is right for each."""

import gzip
import io
import os
import tarfile

from tests.datasets.odd_layouts import JPEG, Read, fill, packed
from tests.datasets.records import (
    bytes_list,
    example,
    floats,
    packed_integers,
    part,
    record,
    record_header,
)
from tests.datasets.records import field as wire_field

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


def tar_bytes(*members, links=()):
    """Return an archive; a link is a name and where it leads, by its type."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for kind, name, target in links:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            tar.addfile(member)
    return stream.getvalue()


ONE = (("1.jpg", JPEG), ("1.cls", b"0"))
OTHER = (("2.jpg", JPEG), ("2.cls", b"1"))
PAIR = tar_bytes(*ONE, *OTHER)
TURNED = tar_bytes(*OTHER, *ONE)
BOTH = {"1.jpg": 0, "2.jpg": 1}


def sparse(name, data):
    """Return a member as GNU tar stores a file with holes: a map, and what is there."""
    header = bytearray(tarfile.TarInfo(name).tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"%011o\0" % len(data)
    header[156:157] = tarfile.GNUTYPE_SPARSE
    header[386:398] = b"%011o\0" % 512  # where the bytes belong
    header[398:410] = b"%011o\0" % len(data)
    header[483:495] = b"%011o\0" % (512 + len(data))
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    return bytes(header[:512]) + data + bytes(-len(data) % 512)


@packed(r"train\.tar: '3\.bmp' is stored sparse, without its zeros; .* without --spa")
def a_sparse_member(root):
    fill(root, "train.tar", data=sparse("3.bmp", b"BM" * 300) + PAIR)


@packed(Read({**BOTH, "3.jpg": 0}))
def hard_links(root):
    links = [(tarfile.LNKTYPE, "3.jpg", "2.jpg"), (tarfile.LNKTYPE, "3.cls", "1.cls")]
    fill(root, "train.tar", data=tar_bytes(*ONE, *OTHER, links=links))


@packed(r"'3\.jpg' is a link to '9\.jpg', which does not come before it")
def a_hard_link_to_nothing(root):
    links = [(tarfile.LNKTYPE, "3.jpg", "9.jpg")]
    fill(root, "train.tar", data=tar_bytes(*ONE, *OTHER, links=links))


@packed(r"'3\.jpg' is a link to '2\.jpg'; pack .* with tar --dereference")
def a_symbolic_link(root):
    links = [(tarfile.SYMTYPE, "3.jpg", "2.jpg")]
    fill(root, "train.tar", data=tar_bytes(*ONE, *OTHER, links=links))


@packed(r"'3\.jpg' is not a whole file")
def a_pipe_in_a_tar_file(root):
    links = [(tarfile.FIFOTYPE, "3.jpg", "")]
    fill(root, "train.tar", data=tar_bytes(*ONE, *OTHER, links=links))


@packed(Read({**BOTH, "3.jpg": 1, "4.jpg": 0}))
def archives_one_after_the_other(root):
    more = [tar_bytes(("3.jpg", JPEG), ("3.cls", b"1"))]
    more += [tar_bytes(("4.jpg", JPEG), ("4.cls", b"0"))]
    fill(root, "train.tar", data=b"".join((PAIR, *more)))


@packed(r"train\.tar is damaged at byte 10,240: neither another file nor the end")
def something_else_after_an_archive(root):
    fill(root, "train.tar", data=PAIR + b"something else" * 100)


@packed(r"'3' has a label, but no image \('3\.gif', '3\.cls'\); give it an image")
def a_gif_with_a_label(root):
    fill(root, "train.tar", data=tar_bytes(*ONE, ("3.gif", b"GIF"), ("3.cls", b"1")))


@packed(r"'3' has a label, but no image \('3\.jp2', '3\.json'\)")
def a_jp2_with_labels(root):
    members = (("3.jp2", b"jp2"), ("3.json", b"[1]"))
    fill(root, "train.tar", data=tar_bytes(*ONE, *members))


@packed(Read(BOTH, passed_over={"*.txt": 1, "*.json": 1}))
def texts_without_an_image(root):
    members = (("about.txt", b"cats"), ("classes.json", b'{"cat": 0}'))
    fill(root, "train.tar", data=tar_bytes(*members, *ONE, *OTHER))


@packed(Read(BOTH, passed_over={"hidden *.jpg": 2}))
def files_of_macos(root):
    hidden = [
        (f"{folder}._{n}", b"\0") for folder, n in (("", "1.jpg"), ("d/", "9.jpg"))
    ]
    members = (hidden[0], ONE[0], ("._1.cls", b"\0"), ONE[1], hidden[1], *OTHER)
    fill(root, "train.tar", data=tar_bytes(*members))


@packed(r"has no image in 1 webdataset file; found 1 \*\.ten, 1 \*\.txt; pack images")
def a_tar_file_without_images(root):
    fill(root, "train.tar", data=tar_bytes(("1.ten", b"1"), ("1.txt", b"2")))


@packed(Read(BOTH, passed_over={"*.txt": 1, "*.json": 1}))
def texts_beside_an_image(root):
    members = (("1.txt", b"a cat"), *ONE, ("1.json", b'{"caption": "a cat"}'), *OTHER)
    fill(root, "train.tar", data=tar_bytes(*members))


@packed(r"train\.tar holds '1\.jpg' twice, as after tar --append, .* unpack it, which")
def an_image_that_is_there_twice(root):
    again = (("./1.jpg", JPEG), ("./1.cls", b"0"))
    fill(root, "train.tar", data=tar_bytes(*ONE, *OTHER, *again))


@packed(r"train\.tar holds '1\.jpg' twice")
def an_image_that_is_there_twice_in_a_row(root):
    fill(root, "train.tar", data=tar_bytes(*ONE, *ONE, *OTHER))


@packed(r"train\.tar holds '1\.cls' twice")
def a_label_that_is_there_twice(root):
    fill(root, "train.tar", data=tar_bytes(*ONE, ("1.cls", b"1"), *OTHER))


@packed(r"train\.tar holds '1\.cls' twice")
def a_label_that_is_there_in_capitals_too(root):
    fill(root, "train.tar", data=tar_bytes(*ONE, ("1.CLS", b"1"), *OTHER))


@packed(Read(BOTH, passed_over={"*.json": 2, "*.txt": 2}))
def other_files_that_are_there_twice(root):
    others = (("1.json", b"{}"), ("1.JSON", b"{}"), ("1.txt", b"a"), ("1.txt", b"b"))
    fill(root, "train.tar", data=tar_bytes(*ONE, *others, *OTHER))


@packed(Read({**BOTH, "3.jpg": 1}, passed_over={"with no suffix": 2}))
def archives_with_a_readme_where_they_meet(root):
    readme = ("README", b"cats")
    more = tar_bytes(readme, ("3.jpg", JPEG), ("3.cls", b"1"))
    fill(root, "train.tar", data=tar_bytes(*ONE, *OTHER, readme) + more)


@packed(r"'1\.json' holds b'\[+', but a label is the index of a class")
def brackets_without_end(root):
    members = (("1.jpg", JPEG), ("1.json", b"[" * 200_000))
    fill(root, "train.tar", data=tar_bytes(*members))


@packed(Read(BOTH))
def a_suffix_in_capitals(root):
    fill(root, "TRAIN.TAR", data=PAIR)


@packed(Read(BOTH, {"val/3.jpg": 0}, {"*.tar of a test": 1}))
def shards_of_each_split(root):
    fill(root, "Train/0.tar", "test-0.tar", data=PAIR)
    members = (("val/3.jpg", JPEG), ("val/3.cls", b"0"))
    fill(root, "EVAL-0.tar", data=tar_bytes(*members))


@packed(Read(BOTH, BOTH))
def a_testing_shard(root):
    fill(root, "training-0.tar", data=PAIR)
    fill(root, "testing-0.tar", data=TURNED)


@packed(r"train_val\.tar is named for train and validation, so that its images would")
def a_shard_of_two_splits(root):
    fill(root, "train_val.tar", "train.tar", data=PAIR)


@packed(Read(BOTH, passed_over={"*.tar.gz": 1, "*.tgz": 1, "*.tar in more/": 1}))
def shards_that_are_not_read(root):
    fill(root, "train-0.tar", data=PAIR)
    fill(root, "train-1.tar.gz", "2.tgz", "more/0.tar", "notes.gz", "notes.txt")


@packed(r"a\.tar and b\.tar are one file, by a link, so that its images would count")
def a_shard_by_two_names(root):
    fill(root, "a.tar", data=PAIR)
    (root / "b.tar").symlink_to("a.tar")


@packed(r"b\.tar is not a regular file, but a link to nothing; remove it")
def a_shard_that_is_a_link_to_nothing(root):
    fill(root, "a.tar", data=PAIR)
    (root / "b.tar").symlink_to("c.tar")


@packed(r"a\.tar is not a regular file, but a link to nothing; remove it")
def shards_that_are_all_links_to_nothing(root):
    (root / "a.tar").symlink_to("gone/a.tar")
    (root / "b.tar").symlink_to("gone/b.tar")


@packed(r"train is a link to '/gone/train', which cannot be followed")
def a_split_of_shards_that_is_a_link_to_nothing(root):
    fill(root, "a.tar", data=PAIR)
    (root / "train").symlink_to("/gone/train")


@packed(Read(BOTH, BOTH, {"test/ by a link to nothing": 1}))
def a_test_of_shards_that_is_a_link_to_nothing_beside_val(root):
    fill(root, "train.tar", data=PAIR)
    fill(root, "val.tar", data=TURNED)
    (root / "test").symlink_to("/gone/test")


@packed(
    Read(
        BOTH,
        BOTH,
        {"*.tar.gz in train/": 1, "*.tar in train/": 1, "*.tgz in val/": 1},
    )
)
def shards_that_are_not_read_in_folders_of_splits(root):
    fill(root, "train/0.tar", data=PAIR)
    fill(root, "val/0.tar", data=TURNED)
    fill(root, "train/1.tar.gz", "train/more/deep/2.tar", "val/deep/1.tgz")
    fill(root, "train/more/notes.txt", "val/notes.gz")


@packed(r"b\.tar is not a regular file, but a pipe or device; remove it")
def a_shard_that_is_a_pipe(root):
    fill(root, "a.tar", data=PAIR)
    os.mkfifo(root / "b.tar")


@packed(r"training images of 1 class \(0\), but a classifier needs 2 or more")
def one_class(root):
    fill(root, "train.tar", data=tar_bytes(*ONE))


@packed(r"train\.tar is damaged at byte 0: .*; the file begins with b'version https://git-lfs")
def a_tar_file_elsewhere(root):
    fill(root, "train.tar", data=LFS)


# RecordIO

REC = part(record_header(0, 0) + JPEG) + part(record_header(1, 1) + JPEG)


@packed(Read({"cat/0.jpg": 0, "dog/1.jpg": 1}))
def a_list_with_an_empty_line(root):
    fill(root, "x.rec", data=REC)
    fill(root, "x.lst", data=b"0\t0.0\tcat/0.jpg\n1\t1.0\tdog/1.jpg\n\n")


@packed(r"x\.lst: 'dog/1\.jpg' has the label 1, but its record 0 in \S+ has 0; the lis")
def a_list_of_other_records(root):
    fill(root, "x.rec", data=REC)
    fill(root, "x.lst", data=b"0\t1\tdog/1.jpg\n1\t0\tcat/0.jpg\n")


@packed(Read({"cat/0.jpg": 0, "dog/1.jpg": 1}, passed_over={"*.jpg": 1}))
def a_list_of_more_than_was_packed(root):
    fill(root, "x.rec", data=REC)
    fill(root, "x.lst", data=b"0\t0\tcat/0.jpg\n1\t1\tdog/1.jpg\n2\t1\tdog/2.jpg\n")


@packed(r"dataset\.json is a link to 'gone', which cannot be followed")
def a_description_that_is_a_link_to_nothing(root):
    fill(root, "x.rec", data=REC)
    (root / "dataset.json").symlink_to("gone")


@packed(r"x\.lst cannot be read \(not a regular file, but a folder, pipe or device\)")
def a_list_that_is_a_pipe(root):
    fill(root, "x.rec", data=REC)
    os.mkfifo(root / "x.lst")


@packed(r"x\.rec: the record at byte 0 holds numbers as Amazon SageMaker writes them")
def numbers_of_sagemaker(root):
    values = wire_field(1, b"values") + wire_field(2, wire_field(2, bytes(200)))
    fill(root, "x.rec", data=part(wire_field(1, values)))


# TFRecord


def labelled(label, name=b"1.jpg", image=JPEG):
    features = {"image/encoded": bytes_list(image), "image/filename": bytes_list(name)}
    return record(example({**features, "image/class/label": label}))


TFRECORD = labelled(packed_integers(0)) + labelled(packed_integers(1), b"2.jpg")


@packed(Read(BOTH))
def a_whole_tfrecord(root):
    fill(root, "x.TFRecord", data=TFRECORD)


@packed(Read(BOTH, passed_over={"train-*-of-00003 that are not there": 2}))
def a_part_of_the_tfrecords(root):
    fill(root, "train-00001-of-00003", data=TFRECORD)


@packed(Read(BOTH, passed_over={"*.tfrecord without an image": 1}))
def a_tfrecord_without_records(root):
    fill(root, "x.tfrecord", data=TFRECORD)
    fill(root, "y.tfrecord", data=b"")


@packed(r"x\.tfrecord is damaged at byte 0: .*; the file begins with b'\\x1f")
def a_tfrecord_in_gzip(root):
    fill(root, "x.tfrecord", data=gzip.compress(TFRECORD))


@packed(r"byte 0 has text in its feature 'image/class/label', but a label is the index")
def labels_of_text(root):
    fill(root, "x.tfrecord", data=labelled(bytes_list(b"cat")))


@packed(r"byte 0 has a float in its feature 'image/class/label'")
def labels_of_floats(root):
    fill(root, "x.tfrecord", data=labelled(floats(1.0)))


@packed(r"byte 0 has no value in its feature 'image/class/label'")
def labels_of_nothing(root):
    fill(root, "x.tfrecord", data=labelled(packed_integers()))


@packed(r"byte 0 is whole, but not a tf\.train\.Example \(")
def records_of_something_else(root):
    fill(root, "x.tfrecord", data=record(b"\x0a\x7fpickled"))


@packed(r"x\.tfrecord is damaged at byte 15: a field that is longer than its message")
def a_message_that_has_changed(root):
    data = bytearray(TFRECORD)
    data[13] ^= 0x40
    fill(root, "x.tfrecord", data=bytes(data))


@packed(r"no feature 'image/encoded', only \\udcff\\x1b; pack|only .*\\x1b; pack")
def a_feature_with_an_odd_name(root):
    entry = wire_field(1, b"\xff\x1b") + wire_field(2, bytes_list(b"1"))
    fill(root, "x.tfrecord", data=record(wire_field(1, wire_field(1, entry))))
