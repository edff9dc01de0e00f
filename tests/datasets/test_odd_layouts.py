"""Odd folders and packs: read whole, counted, or refused by name."""

import io
import os
import sys

import pytest

from nbkit.datasets import pack
from nbkit.datasets.find import find
from nbkit.datasets.manifest import read_manifest, write_manifest
from nbkit.errors import ConfigError
from tests.datasets import odd_layouts, odd_packs, odd_splits
from tests.datasets.images import write_folder
from tests.datasets.odd_layouts import JPEG, counted, fill
from tests.hostile.strangers import as_stranger, needs_root

DEEP = sys.getrecursionlimit() + 100
LAYOUTS = {**odd_layouts.FOLDERS, **odd_layouts.PACKS}


def listed(root):
    listing = find(str(root))
    listing.fingerprint()
    assert listing.contents
    return listing


def looked_at(root, target):
    """Return the manifest of a folder, as a run makes it."""
    listing = find(str(root))
    write_manifest(listing, listing.fingerprint(), target, threads=1)
    return read_manifest(target)


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_odd_layout_is_read_whole_or_refused_by_name(tmp_path, name):
    make, right = LAYOUTS[name]
    make(tmp_path)

    if isinstance(right, str):
        with pytest.raises(ConfigError, match=right):
            listed(tmp_path)
        return
    listing = listed(tmp_path)
    contents = listing.contents
    assert dict(counted(contents.train)) == dict.fromkeys(right.train.items(), 1)
    expected = dict.fromkeys(right.evaluation.items(), 1)
    assert dict(counted(contents.evaluation)) == expected
    assert dict(listing.passed_over) == right.passed_over


def test_folders_lie_within_folders_however_many(tmp_path):
    odd_layouts.two(tmp_path)
    here = os.open(tmp_path / "a", os.O_RDONLY)
    for _ in range(DEEP):
        os.mkdir("n", dir_fd=here)
        inner = os.open("n", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("1.jpg", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)
    try:
        found = [sample.name for sample in find(str(tmp_path)).train]
    finally:
        # Python's own removal calls itself for each folder.
        top, inner = tmp_path / "a" / "n", tmp_path / "inner"
        while (top / "n").exists():
            (top / "n").rename(inner)
            top.rmdir()
            inner.rename(top)

    assert found == ["a/1.jpg", f"a/{'n/' * DEEP}1.jpg", "b/2.jpg"]


@needs_root
def test_folders_of_others_beside_splits_are_skipped(tmp_path):
    odd_layouts.two(tmp_path / "data", "train/")
    for name in ("lost+found", "private"):
        (tmp_path / "data" / name).mkdir(mode=0o700)

    with as_stranger(tmp_path / "data"):
        listing = find(str(tmp_path / "data"))

    assert dict(listing.passed_over) == {}
    assert len(listing.train) == 2


@needs_root
def test_a_class_by_a_link_into_a_folder_of_others_is_refused(tmp_path):
    odd_splits.what_a_disk_has_in_its_top_folder(tmp_path / "data")
    fill(tmp_path, "closed/c/1.jpg")
    (tmp_path / "closed").chmod(0o700)
    (tmp_path / "data" / "c").symlink_to("../closed/c")

    with as_stranger(tmp_path / "data"), pytest.raises(ConfigError) as raised:
        find(str(tmp_path / "data"))

    assert "which cannot be followed (Permission denied)" in str(raised.value)


def test_links_to_nothing_are_left_out_with_their_reason(tmp_path):
    odd_layouts.links_to_nothing(tmp_path / "data")

    manifest = looked_at(tmp_path / "data", tmp_path / "manifest")

    assert len(manifest.train) == 2
    assert {one.name: one.reason for one in manifest.unreadable} == {
        "a/gone.jpg": "a link to nothing",
        "a/self.jpg": "a link to itself",
    }


def test_a_linked_image_that_is_there_again_makes_another_manifest(tmp_path):
    odd_layouts.links_to_nothing(tmp_path)
    before = find(str(tmp_path)).fingerprint()

    fill(tmp_path, "a/nothing.jpg")

    assert find(str(tmp_path)).fingerprint().stamp != before.stamp


def test_files_that_are_passed_over_make_no_other_manifest(tmp_path):
    odd_layouts.two(tmp_path)
    before = find(str(tmp_path)).fingerprint()

    fill(tmp_path, "a/1.gif")

    assert find(str(tmp_path)).fingerprint() == before


def test_the_manifest_counts_files_in_packed_files_that_are_passed_over(tmp_path):
    odd_packs.texts_without_an_image(tmp_path / "data")
    fill(tmp_path / "data", "train-1.tar.gz")

    manifest = looked_at(tmp_path / "data", tmp_path / "manifest")

    # Each run counts those beside them itself.
    assert manifest.passed_over == {"*.txt": 1, "*.json": 1}


@pytest.fixture
def changed(tmp_path):
    """A TFRecord file with one bit of the first image changed."""
    odd_packs.a_whole_tfrecord(tmp_path / "data")
    path = tmp_path / "data" / "x.TFRecord"
    data = bytearray(path.read_bytes())
    data[data.index(JPEG) + len(JPEG) // 2] ^= 1
    path.write_bytes(data)
    return tmp_path / "data"


def test_an_image_whose_record_has_another_checksum_is_left_out(tmp_path, changed):
    manifest = looked_at(changed, tmp_path / "manifest")

    assert manifest.train.name(0) == "2.jpg"
    assert len(manifest.train) == 1
    ((name, reason),) = [(one.name, one.reason) for one in manifest.unreadable]
    assert name == "1.jpg"
    assert reason == "its record at byte 0 has another checksum: a bit has changed"


def test_a_record_cut_short_since_the_listing_is_said_to_be(tmp_path, changed):
    listing = find(str(changed))
    (first, *_) = listing.train
    for length in (100, 5):
        os.truncate(changed / "x.TFRecord", length)

        said = listing.damage(first)

        assert said == "the file ends inside its record at byte 0"


def test_a_record_with_another_checksum_is_not_packed_anew(tmp_path, changed):
    with pytest.raises(ConfigError, match=r"1.jpg in .* cannot be packed \(its record"):
        pack(changed, tmp_path / "packed", "webdataset", on_progress=lambda *_: None)


def test_packing_tells_how_many_files_it_leaves_out(tmp_path, capsys):
    odd_layouts.a_test_beside_val(tmp_path / "data")
    fill(tmp_path / "data", "train/a/1.gif")

    pack(tmp_path / "data", tmp_path / "packed", "tfrecord")

    said = "not packed, as not part of the data: 3 files (2 *.jpg in test/, 1 *.gif)"
    assert capsys.readouterr().out.splitlines()[0] == said


@pytest.mark.parametrize(
    ("encoding", "said"), [("utf-8", r"*.\udce9 é"), ("ascii", r"*.\udce9 \xe9")]
)
def test_packing_tells_of_names_that_the_output_cannot_encode(
    tmp_path, monkeypatch, encoding, said
):
    odd_layouts.two(tmp_path / "data")
    fill(tmp_path / "data", "a/1." + os.fsdecode(b"\xe9 \xc3\xa9"))
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding, "strict"))

    pack(tmp_path / "data", tmp_path / "packed", "tfrecord")

    sys.stdout.flush()
    assert f"1 file (1 {said})\n".encode(encoding) in out.getvalue()


def test_a_pack_of_a_pack_is_told_what_is_left_out(tmp_path, capsys):
    odd_packs.texts_beside_an_image(tmp_path / "data")

    pack(tmp_path / "data", tmp_path / "packed", "recordio")

    said = capsys.readouterr().out
    assert "data: 2 files (1 *.txt, 1 *.json)\n" in said


@pytest.mark.parametrize("format", ["recordio", "webdataset"])
def test_a_shard_that_is_cut_short_meanwhile_is_not_packed(tmp_path, packed, format):
    data = write_folder(tmp_path / "data")
    first = packed(data, format)
    (shard,) = (one for one in first.glob("val*") if one.suffix in (".rec", ".tar"))

    with pytest.raises(
        ConfigError, match=r"packed: it has \d+ bytes now and had \d+; l"
    ):
        pack(
            first,
            tmp_path / "second",
            "tfrecord",
            on_progress=lambda *_: os.truncate(shard, 2_000),
        )

    assert not (tmp_path / "second").exists()


def test_an_image_that_is_a_pipe_is_not_packed(tmp_path):
    odd_layouts.a_pipe(tmp_path / "data")

    with pytest.raises(ConfigError, match=r"pipe 1\.jpg is not a regular file"):
        pack(tmp_path / "data", tmp_path / "packed", "tfrecord")
