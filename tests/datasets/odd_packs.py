"""Packs as people have them, made by code, and what is right for each."""

import gzip
import io
import tarfile

from tests.datasets.odd_layouts import JPEG, Read
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


def linked(kind, target):
    """Return an archive of two images and a member that is no file."""
    return tar_bytes(*ONE, *OTHER, links=[(kind, "3.jpg", target)])


REC = part(record_header(0, 0) + JPEG) + part(record_header(1, 1) + JPEG)


def labelled(label, name=b"1.jpg", image=JPEG):
    features = {"image/encoded": bytes_list(image), "image/filename": bytes_list(name)}
    return record(example({**features, "image/class/label": label}))


TFRECORD = labelled(packed_integers(0)) + labelled(packed_integers(1), b"2.jpg")
CHANGED = bytearray(TFRECORD)
CHANGED[13] ^= 0x40
ODD_FEATURE = wire_field(1, b"\xff\x1b") + wire_field(2, bytes_list(b"1"))


def train_tar(*members):
    return {"train.tar": tar_bytes(*members)}


NO_FILE = r"train\.tar: '3\.\w+' is a link, a sparse file or a special file\. Pack"
AFTER_END = r"train\.tar has data after the end of its archive"
PACKS = {
    # WebDataset
    "sparse": ({"train.tar": sparse("3.bmp", b"BM" * 300) + PAIR}, NO_FILE),
    "hard link": ({"train.tar": linked(tarfile.LNKTYPE, "2.jpg")}, NO_FILE),
    "symbolic link": ({"train.tar": linked(tarfile.SYMTYPE, "2.jpg")}, NO_FILE),
    "pipe": ({"train.tar": linked(tarfile.FIFOTYPE, "")}, NO_FILE),
    "joined archives": ({"train.tar": PAIR + TURNED}, AFTER_END),
    "more after the end": ({"train.tar": PAIR + b"something else" * 100}, AFTER_END),
    "gif with a label": (
        train_tar(*ONE, ("3.gif", b"GIF"), ("3.cls", b"1")),
        r"'3' has a label, but no image \('3\.gif', '3\.cls'\)\. Add an image",
    ),
    "jp2 with labels": (
        train_tar(*ONE, ("3.jp2", b"jp2"), ("3.json", b"[1]")),
        r"'3' has a label, but no image \('3\.jp2', '3\.json'\)",
    ),
    "texts": (
        train_tar(("about.txt", b"cats"), *ONE, ("1.json", b'{"cat": 0}'), *OTHER),
        Read(BOTH),
    ),
    "files of macos": (
        train_tar(("._1.jpg", b"\0"), *ONE, ("d/._9.jpg", b"\0"), *OTHER),
        Read(BOTH),
    ),
    "no images": (
        train_tar(("1.ten", b"1"), ("1.txt", b"2")),
        "has no image in 1 webdataset file. Pack images",
    ),
    "image twice": (
        train_tar(*ONE, *OTHER, ("./1.jpg", JPEG), ("./1.cls", b"0")),
        r"train\.tar contains '1\.jpg' twice, possibly after tar --append",
    ),
    "image twice in a row": (
        train_tar(*ONE, *ONE, *OTHER),
        r"train\.tar contains '1\.jpg' twice",
    ),
    "label twice": (
        train_tar(*ONE, ("1.CLS", b"1"), *OTHER),
        r"train\.tar contains '1\.CLS' twice",
    ),
    "brackets without end": (
        train_tar(("1.jpg", JPEG), ("1.json", b"[" * 200_000)),
        r"'1\.json' contains b'\[+', which is neither a class index nor",
    ),
    "one class": (
        train_tar(*ONE),
        r"training images of 1 class \(0\), but a classifier needs 2 or more",
    ),
    "gzip": (
        {"train.tar": gzip.compress(PAIR, mtime=0)},
        r"train\.tar is damaged at byte 0: .*; the file begins with b'\\x1f\\x8b",
    ),
    "git lfs": (
        {"train.tar": LFS},
        r"train\.tar is damaged at byte 0: .*; the file begins with b'version https:",
    ),
    # Names and places
    "suffix in capitals": ({"TRAIN.TAR": PAIR}, Read(BOTH)),
    "test beside val": (
        {
            "Train/0.tar": PAIR,
            "test-0.tar": PAIR,
            "EVAL-0.tar": tar_bytes(("val/3.jpg", JPEG), ("val/3.cls", b"0")),
        },
        Read(
            BOTH,
            {"val/3.jpg": 0},
            {},
            ("1 packed test file skipped: evaluation uses the validation files",),
        ),
    ),
    "testing": ({"training-0.tar": PAIR, "testing-0.tar": TURNED}, Read(BOTH, BOTH)),
    "shard of two splits": (
        {"train_val.tar": PAIR, "train.tar": PAIR},
        r"train_val\.tar is ambiguous: .* names train and validation",
    ),
    "compressed shards beside others": (
        {"train-0.tar": PAIR, "train-1.tar.gz": PAIR, "2.tgz": PAIR, "notes.txt": b""},
        Read(BOTH, {}, {"*.gz": 1, "*.tgz": 1}),
    ),
    "shard by a link to nothing": (
        {"a.tar": PAIR, "b.tar -> c.tar": b""},
        r"b\.tar is not a regular file, but .* a broken link\. Remove it",
    ),
    "split by a link to nothing": (
        {"a.tar": PAIR, "train -> /gone/train": b""},
        "train is a link to '/gone/train', which cannot be followed",
    ),
    # RecordIO
    "list with an empty line": (
        {"x.rec": REC, "x.lst": b"0\t0.0\tcat/0.jpg\n1\t1.0\tdog/1.jpg\n\n"},
        Read({"cat/0.jpg": 0, "dog/1.jpg": 1}),
    ),
    # TFRecord
    "whole tfrecord": ({"x.TFRecord": TFRECORD}, Read(BOTH)),
    "kaggle's tfrec": ({"train00-1338.tfrec": TFRECORD}, Read(BOTH)),
    "part of the tfrecords": (
        {"train-00001-of-00003": TFRECORD},
        Read(BOTH, notes=("missing packed files: 2 of 3 (train-*-of-00003)",)),
    ),
    "tfrecord without records": (
        {"x.tfrecord": TFRECORD, "y.tfrecord": b""},
        Read(BOTH),
    ),
    "labels of floats": (
        {"x.tfrecord": labelled(floats(1.0))},
        "byte 0 has no integer in its feature 'image/class/label'",
    ),
    "changed message": (
        {"x.tfrecord": bytes(CHANGED)},
        r"is damaged or not a tf\.train\.Example \(a field .* at byte 15\)",
    ),
    "odd name of a feature": (
        {"x.tfrecord": record(wire_field(1, wire_field(1, ODD_FEATURE)))},
        r"no feature .* or image, only \\udcff\\x1b\. Pack|only .*\\x1b\. Pack",
    ),
}
