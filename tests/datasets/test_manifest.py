"""The manifest: what is readable is decided once, and nobody sees half of it."""

import errno
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from PIL import Image

from nbkit.datasets.find import find
from nbkit.datasets.manifest import (
    Unreadable,
    manifest_name,
    read_manifest,
    write_manifest,
)
from nbkit.datasets.samples import Samples
from nbkit.errors import ConfigError, StoreError
from tests.datasets.images import images_of, jpeg, picture

FORMATS = ["webdataset", "recordio", "tfrecord"]


def manifest_of(data, target, **options):
    listing = find(str(data))
    write_manifest(listing, listing.fingerprint(), target, **options)
    return read_manifest(target)


def content(samples):
    try:
        return [
            (samples.name(i), samples.label(i), samples.size_bytes(i), samples.read(i))
            for i in range(len(samples))
        ]
    finally:
        samples.close()


def open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_manifest_has_every_image_with_its_size_and_place(folder, tmp_path):
    manifest = manifest_of(folder, tmp_path / "manifest.jsonl")

    assert manifest.kind == "image folder"
    assert manifest.classes == ["apple", "big pear", "cherry"]
    assert manifest.unreadable == []
    assert manifest.fingerprint == find(str(folder)).fingerprint().to_dict()
    found = {
        (split, name, label, data)
        for split, samples in (
            ("train", manifest.train),
            ("evaluation", manifest.evaluation),
        )
        for name, label, size, data in content(samples)
        if size == len(data)
    }
    assert found == images_of(find(str(folder)))
    assert manifest.train.place(0) == str(folder / manifest.train.name(0))
    looked = manifest.train.decoding(0)
    assert (looked.width, looked.height, looked.orientation) == (48, 40, 1)


@pytest.mark.parametrize("format", FORMATS)
def test_manifests_of_all_formats_agree_by_index(folder, packed, tmp_path, format):
    original = manifest_of(folder, tmp_path / "original.jsonl")

    again = manifest_of(packed(folder, format), tmp_path / "packed.jsonl")

    assert content(again.train) == content(original.train)
    assert content(again.evaluation) == content(original.evaluation)
    assert [again.train.decoding(i) for i in range(12)] == [
        original.train.decoding(i) for i in range(12)
    ]
    assert f"{again.train.name(0)} in " in again.train.place(0)


@pytest.mark.parametrize("format", [None, *FORMATS])
def test_unreadable_images_are_named_and_left_out(folder, packed, tmp_path, format):
    broken = {
        "train/apple/0 0.png": (b"no image", "a format that Pillow does not support"),
        "val/cherry/1 2.JPEG": (jpeg(1)[:-60], "truncated"),
        "train/cherry/1 2.JPEG": (b"", "the file is empty"),
    }
    for name, (data, _) in broken.items():
        (folder / name).write_bytes(data)

    data = packed(folder, format) if format else folder
    manifest = manifest_of(data, tmp_path / "manifest.jsonl", threads=2)

    assert {entry.name for entry in manifest.unreadable} == broken.keys()
    for entry in manifest.unreadable:
        assert isinstance(entry, Unreadable)
        assert broken[entry.name][1] in entry.reason
        assert entry.split == ("evaluation" if entry.name[0] == "v" else "train")
    assert len(manifest.train) == 10
    assert len(manifest.evaluation) == 5
    names = [manifest.train.name(index) for index in range(10)]
    assert names == sorted(names)
    assert not broken.keys() & set(names)


def test_orientation_and_size_are_as_the_image_is_seen(folder, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(1, (48, 40)).save(folder / "train" / "apple" / "0 0.jpg", exif=exif)

    manifest = manifest_of(folder, tmp_path / "manifest.jsonl")

    looked = manifest.train.decoding(0)
    assert manifest.train.name(0) == "train/apple/0 0.jpg"
    assert (looked.width, looked.height, looked.orientation) == (40, 48, 6)


def test_a_warning_of_pillow_makes_nothing_unreadable(folder, tmp_path):
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x05damaged"
    picture(1).save(folder / "train" / "apple" / "0 0.jpg", exif=exif)
    with (
        pytest.warns(UserWarning, match="EXIF"),
        Image.open(folder / "train" / "apple" / "0 0.jpg") as image,
    ):
        image.getexif()

    with warnings.catch_warnings(action="error"):
        manifest = manifest_of(folder, tmp_path / "manifest.jsonl")

    assert manifest.unreadable == []
    assert manifest.train.name(0) == "train/apple/0 0.jpg"


def test_a_file_that_goes_meanwhile_ends_the_work_and_leaves_nothing(folder, tmp_path):
    listing = find(str(folder))
    fingerprint = listing.fingerprint()
    gone = folder / listing.contents.train[-1].name
    gone.unlink()

    with pytest.raises(ConfigError, match=f"{gone} cannot be read"):
        write_manifest(listing, fingerprint, tmp_path / "new" / "manifest.jsonl")
    with pytest.raises(ConfigError, match=f"{gone} cannot be read"):
        listing.fingerprint()

    assert not (tmp_path / "new").exists()


def test_progress_counts_images_and_may_end_the_work(folder, tmp_path):
    told = []
    manifest_of(folder, tmp_path / "1.jsonl", on_progress=lambda *now: told.append(now))
    assert told[-1] == (18, 18)

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        manifest_of(folder, tmp_path / "2.jsonl", on_progress=stop)
    assert not (tmp_path / "2.jsonl").exists()


def test_a_name_that_is_no_utf8_survives(folder, tmp_path):
    path = folder / "train" / "apple" / "0 0.png"
    path.rename(path.with_name(os.fsdecode(b"\xff.png")))

    manifest = manifest_of(folder, tmp_path / "manifest.jsonl")

    names = [manifest.train.name(index) for index in range(len(manifest.train))]
    assert b"train/apple/\xff.png" in map(os.fsencode, names)


def test_another_pillow_or_other_rules_have_a_manifest_of_their_own(
    folder, monkeypatch
):
    fingerprint = find(str(folder)).fingerprint()
    names = {manifest_name(fingerprint)}
    assert manifest_name(fingerprint) in names

    with monkeypatch.context() as patch:
        patch.setattr("PIL.__version__", "99.0")
        names.add(manifest_name(fingerprint))
    with monkeypatch.context() as patch:
        patch.setattr("nbkit.datasets.manifest.RULES", "rules 0")
        names.add(manifest_name(fingerprint))

    assert len(names) == 3


LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
from nbkit.datasets.find import find
from nbkit.datasets.manifest import write_manifest

listing = find(sys.argv[1])
fingerprint = listing.fingerprint()
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (20 << 20),) * 2)
write_manifest(listing, fingerprint, Path(sys.argv[2]), threads=1)
"""


def test_want_of_memory_is_no_property_of_an_image(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        picture(1).save(tmp_path / "data" / name / "small.png")
    Image.new("L", (12_000, 12_000)).save(tmp_path / "data" / "a" / "large.png")
    target = tmp_path / "manifest.jsonl"

    words = [sys.executable, "-c", LITTLE_MEMORY, tmp_path / "data", target]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)

    assert re.search(
        r"ConfigError: .*a/large.png cannot be .*out of memory", ended.stderr
    )
    assert not target.exists()


DAMAGES = {
    "empty": lambda text: "",
    "something else": lambda text: "{}",
    "another schema": lambda text: text.replace("nbkit.manifest/1", "nbkit.manifest/0"),
    "a line less": lambda text: "\n".join(text.splitlines()[:-1]),
    "cut off": lambda text: "\n".join(text.splitlines()[:3]),
    "a line more": lambda text: text + text.splitlines()[-1],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_manifest_that_is_none_is_named(folder, tmp_path, damage):
    target = tmp_path / "manifest.jsonl"
    manifest_of(folder, target)
    target.write_text(damage(target.read_text()))

    with pytest.raises(StoreError, match=f"{target} is not a valid man.*Remove it"):
        read_manifest(target)


def test_a_manifest_that_cannot_be_written_is_named(folder):
    listing = find(str(folder))

    target = Path("/proc/manifest")

    with pytest.raises(StoreError, match=r"/proc/manifest cannot be written \("):
        write_manifest(listing, listing.fingerprint(), target)


def test_the_fingerprint_of_a_copy_differs_in_its_stamp_alone(folder, tmp_path):
    before = find(str(folder)).fingerprint()
    path = folder / "train" / "apple" / "0 0.png"
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(1, 1))

    after = find(str(folder)).fingerprint()

    assert after.sha256 == before.sha256
    assert after.stamp != before.stamp


def test_many_packed_files_are_read_with_few_open(folder, tmp_path, packed):
    big = tmp_path / "big"
    for label in ("a", "b"):
        (big / label).mkdir(parents=True)
        for number in range(3):
            path = big / label / f"{number}.png"
            picture(number, (700, 500)).save(path, compress_level=0)  # 1 MB
    manifest = manifest_of(packed(big, "tfrecord", shard_megabytes=1), tmp_path / "m")
    header = json.loads((tmp_path / "m").read_text().splitlines()[0])
    assert len(header["shards"]) == 6

    limit = "nbkit.datasets.samples.MOST_OPEN"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limit, 2)
        before = open_files()
        contents = [manifest.train.read(index) for index in range(6)]
        assert open_files() == before + 2
    manifest.train.close()

    assert open_files() == before
    assert contents == [
        (big / manifest.train.name(index)).read_bytes() for index in range(6)
    ]


def test_a_file_that_the_system_does_not_give_is_no_verdict_on_its_image(
    folder, tmp_path, monkeypatch
):
    target = tmp_path / "manifest.jsonl"

    def refuse(self, index):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(Samples, "read", refuse)
        with pytest.raises(ConfigError, match="Too many open files"):
            manifest_of(folder, target)

    assert not target.exists()
    assert manifest_of(folder, target).unreadable == []
