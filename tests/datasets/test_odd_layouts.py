"""Odd folders and packs: read whole, counted, or refused by name."""

import io
import os
import sys

import pytest

from nbkit.datasets import pack
from nbkit.datasets.find import find
from nbkit.datasets.manifest import read_manifest, write_manifest
from nbkit.errors import ConfigError
from tests.datasets.images import write_folder
from tests.datasets.odd_layouts import FOLDERS, SPLITS, counted, fill, two
from tests.datasets.odd_packs import PACKS
from tests.hostile.strangers import as_stranger, needs_root


def read(root):
    """Read a folder as a run does."""
    find(str(root)).fingerprint()
    find(str(root)).read()


def check(root, right):
    """See that a folder is read as is right, or refused with what is right."""
    if isinstance(right, str):
        with pytest.raises(ConfigError, match=right):
            read(root)
        return
    listing = find(str(root))
    listing.fingerprint()
    contents = listing.contents
    assert dict(counted(contents.train)) == dict.fromkeys(right.train.items(), 1)
    expected = dict.fromkeys(right.evaluation.items(), 1)
    assert dict(counted(contents.evaluation)) == expected
    assert dict(listing.skipped_files) == right.skipped_files
    assert tuple(listing.notes) == right.notes


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_are_read_whole_or_refused_by_name(tmp_path, name):
    lines, right = FOLDERS[name]
    fill(tmp_path, *lines)

    check(tmp_path, right)


@pytest.mark.parametrize("name", PACKS)
def test_packs_are_read_whole_or_refused_by_name(tmp_path, name):
    files, right = PACKS[name]
    for file, data in files.items():
        fill(tmp_path, file, data=data)

    check(tmp_path, right)


@needs_root
def test_folders_of_others_beside_splits_are_skipped(tmp_path):
    fill(tmp_path / "data", *two("train/"), "private/1.jpg")
    (tmp_path / "data" / "private").chmod(0o700)

    with as_stranger(tmp_path / "data"):
        listing = find(str(tmp_path / "data"))

    assert not listing.notes
    assert len(listing.contents.train) == 2


@needs_root
def test_a_class_by_a_link_into_a_folder_of_others_is_refused(tmp_path):
    fill(tmp_path, "closed/c/1.jpg", *two("data/"), "data/c -> ../closed/c")
    (tmp_path / "closed").chmod(0o700)

    with as_stranger(tmp_path / "data"), pytest.raises(ConfigError) as raised:
        find(str(tmp_path / "data"))

    assert "which cannot be followed (Permission denied)" in str(raised.value)


def test_links_to_nothing_are_left_out_with_their_reason(tmp_path):
    data = tmp_path / "data"
    fill(data, *two(), "a/gone.jpg -> nothing.jpg", "a/self.jpg -> self.jpg")
    listing = find(str(data))
    write_manifest(listing, listing.fingerprint(), tmp_path / "manifest", threads=1)

    manifest = read_manifest(tmp_path / "manifest")

    assert len(manifest.train) == 2
    assert {one.name: one.reason for one in manifest.unreadable} == {
        "a/gone.jpg": "a broken link",
        "a/self.jpg": "a broken link",
    }


def test_fingerprints_follow_images_and_not_skipped_files(tmp_path):
    fill(tmp_path, *two(), "a/gone.jpg -> nothing.jpg")
    before = find(str(tmp_path)).fingerprint()

    fill(tmp_path, "a/1.gif")
    assert find(str(tmp_path)).fingerprint() == before

    fill(tmp_path, "a/nothing.jpg")
    assert find(str(tmp_path)).fingerprint().stamp != before.stamp


def test_packing_tells_what_is_not_read(tmp_path, capsys):
    fill(tmp_path / "data", *SPLITS, *two("test/"), "train/a/1.gif")

    pack(tmp_path / "data", tmp_path / "packed", "tfrecord")

    assert capsys.readouterr().out.splitlines()[:2] == [
        "skipped folders with images: test",
        "not packed (not part of the data): 1 file (1 *.gif)",
    ]


@pytest.mark.parametrize(
    ("encoding", "said"), [("utf-8", r"*.\udce9 é"), ("ascii", r"*.\udce9 \xe9")]
)
def test_packing_tells_of_names_that_the_output_cannot_encode(
    tmp_path, monkeypatch, encoding, said
):
    fill(tmp_path / "data", *two(), "a/1." + os.fsdecode(b"\xe9 \xc3\xa9"))
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding, "strict"))

    pack(tmp_path / "data", tmp_path / "packed", "tfrecord")

    sys.stdout.flush()
    assert f"1 file (1 {said})\n".encode(encoding) in out.getvalue()


@pytest.mark.parametrize("format", ["recordio", "webdataset"])
def test_a_shard_that_is_cut_short_meanwhile_is_not_packed(tmp_path, packed, format):
    data = write_folder(tmp_path / "data")
    first = packed(data, format)
    (shard,) = (one for one in first.glob("val*") if one.suffix in (".rec", ".tar"))

    with pytest.raises(
        ConfigError, match=r"packed: size changed from \d+ to \d+ bytes\. P"
    ):
        pack(
            first,
            tmp_path / "second",
            "tfrecord",
            on_progress=lambda *_: os.truncate(shard, 2_000),
        )

    assert not (tmp_path / "second").exists()


def test_an_image_that_is_a_pipe_is_not_packed(tmp_path):
    fill(tmp_path / "data", *two())
    os.mkfifo(tmp_path / "data" / "a" / "pipe 1.jpg")

    with pytest.raises(ConfigError, match=r"pipe 1\.jpg cannot be packed"):
        pack(tmp_path / "data", tmp_path / "packed", "tfrecord")
