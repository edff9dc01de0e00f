"""Packs: the same images, names and labels in every format, all of it or nothing."""

import os
import shutil

import pytest

from nbkit.datasets import pack
from nbkit.datasets.find import find
from nbkit.errors import ConfigError, StoreError
from tests.datasets.images import CLASSES, images_of, names_of, picture, write_table

FORMATS = ["webdataset", "recordio", "tfrecord"]
SUFFIXES = {".tar", ".rec", ".tfrecord"}


@pytest.mark.parametrize("format", FORMATS)
def test_a_pack_gives_back_names_labels_splits_and_every_byte(folder, packed, format):
    original = find(str(folder))

    again = find(str(packed(folder, format)))

    assert images_of(again) == images_of(original)
    assert again.contents.classes == list(CLASSES)
    for part, its_original in zip(again.splits(), original.splits(), strict=True):
        assert names_of(part[1]) == names_of(its_original[1])
    sizes = {sample.name: sample.size_bytes for sample in again.contents.train}
    assert sizes == {name: (folder / name).stat().st_size for name in sizes}


@pytest.mark.parametrize("format", FORMATS)
def test_several_labels_come_back_too(table, packed, format):
    original = find(str(table))

    again = find(str(packed(table, format)))

    assert again.contents.is_multi_label
    assert again.contents.classes == ["sick", "old"]
    assert images_of(again) == images_of(original)


@pytest.mark.parametrize("format", FORMATS)
def test_a_single_label_of_zero_or_one_is_no_class(tmp_path, packed, format):
    table = write_table(tmp_path / "one", ["1.png,1", "2.png,0"], "file,sick")

    again = find(str(packed(table, format)))

    assert [sample.label for sample in again.contents.train] == [(1,), (0,)]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("source", FORMATS)
def test_a_pack_can_be_packed_again(folder, packed, tmp_path, source, format):
    first = packed(folder, source)

    second = pack(first, tmp_path / "second", format, on_progress=lambda *_: None)

    assert images_of(find(str(second))) == images_of(find(str(folder)))


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_that_is_full_is_followed_by_another(tmp_path, packed, format):
    for label in ("a", "b"):
        (tmp_path / "big" / label).mkdir(parents=True)
        for number in range(3):
            path = tmp_path / "big" / label / f"{number}.png"
            picture(number, (900, 600)).save(path, compress_level=0)  # 1.6 MB

    pack = packed(tmp_path / "big", format, shard_megabytes=4)

    again = find(str(pack))
    assert len(again.shards) == 3
    assert [f"train-0000{number}" in again.shards[number] for number in range(3)]
    assert all((pack / shard).with_suffix(".idx").is_file() for shard in again.shards)
    assert images_of(again) == images_of(find(str(tmp_path / "big")))


def test_recordio_is_one_file_for_each_split_unless_told(folder, packed):
    names = {path.name for path in packed(folder, "recordio").iterdir()}

    assert names >= {"train.rec", "train.idx", "train.lst", "val.rec", "val.idx"}


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_images_make_the_same_bytes(folder, tmp_path, format):
    contents = []
    for name in ("one", "two"):
        target = pack(folder, tmp_path / name, format, on_progress=lambda *_: None)
        contents.append({path.name: path.read_bytes() for path in target.iterdir()})

    assert contents[0] == contents[1]


def test_training_images_are_shuffled_for_readers_from_front_to_back(folder, packed):
    lines = (packed(folder, "recordio") / "train.lst").read_text().splitlines()

    names = [line.split("\t")[-1] for line in lines]
    assert names != sorted(names)


def test_progress_is_told_for_every_image(folder, tmp_path):
    told = []

    pack(folder, tmp_path / "p", "tfrecord", on_progress=lambda *now: told.append(now))

    assert told == [(done, 18) for done in range(1, 19)]


def test_progress_is_printed_unless_somebody_listens(folder, tmp_path, capsys):
    pack(folder, tmp_path / "pack", "tfrecord")

    assert "packed 18 of 18 images" in capsys.readouterr().out


@pytest.mark.parametrize("format", FORMATS)
def test_nothing_is_left_of_a_pack_that_failed(folder, tmp_path, format):
    (tmp_path / "out").mkdir()

    def stop(done, total):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pack(folder, tmp_path / "out" / "pack", format, on_progress=stop)

    assert list((tmp_path / "out").iterdir()) == []


def test_an_image_that_has_gone_is_named_and_nothing_is_left(folder, tmp_path):
    gone = folder / "val" / "cherry" / "0 2.png"

    with pytest.raises(ConfigError, match=f"{gone} cannot be read"):
        pack(
            folder,
            tmp_path / "out" / "pack",
            "tfrecord",
            on_progress=lambda *_: gone.unlink(missing_ok=True),
        )

    assert list((tmp_path / "out").iterdir()) == []


def test_a_folder_that_holds_something_is_refused(folder, tmp_path):
    with pytest.raises(ConfigError, match="holds files, but packed files require"):
        pack(folder, folder, "webdataset")
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is a file, but packed files require"):
        pack(folder, tmp_path / "file", "webdataset")
    (tmp_path / "empty").mkdir()
    pack(folder, tmp_path / "empty", "webdataset")
    assert find(str(tmp_path / "empty")).kind == "webdataset"


def test_a_pack_may_be_made_where_a_link_leads(folder, tmp_path):
    (tmp_path / "link").symlink_to("empty")
    for exists in (False, True):
        if exists:
            (tmp_path / "empty").mkdir()

        target = pack(folder, tmp_path / "link", "webdataset")

        assert find(str(target)).kind == find(str(tmp_path / "link")).kind
        shutil.rmtree(tmp_path / "empty")


def test_a_pack_needs_a_folder_that_can_be_replaced(folder):
    with pytest.raises(ConfigError, match=r"'/proc' is a mount point"):
        pack(folder, "/proc", "webdataset")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("lost", "split"), [("train", "train"), ("val", "evaluation")])
def test_a_pack_of_which_a_file_is_missing_is_refused(
    folder, packed, format, lost, split
):
    target = packed(folder, format)
    for path in target.glob(f"{lost}*"):
        path.unlink()

    said = rf"has 0 images for {split}, but dataset\.json lists \d+: packed files"
    with pytest.raises(ConfigError, match=said):
        find(str(target)).read()


def test_a_folder_that_cannot_be_written_is_named(folder):
    with pytest.raises(StoreError, match=r"/proc/pack cannot be written \("):
        pack(folder, "/proc/pack", "webdataset")


def test_wrong_arguments_are_refused(folder, tmp_path):
    with pytest.raises(ConfigError, match=r"'zip' is unknown\. Use one of webdataset"):
        pack(folder, tmp_path / "pack", "zip")
    with pytest.raises(ConfigError, match="shard_megabytes=0 is below 1"):
        pack(folder, tmp_path / "pack", "tfrecord", shard_megabytes=0)


@pytest.mark.parametrize(
    ("name", "format", "message"),
    [
        (
            "0 0.jpg",
            "webdataset",
            "0 0.jpg' and .*/0 0.png' have .*Use format='recordio' or 'tf",
        ),
        (
            "a.b.png",
            "webdataset",
            "a.b.png' has more than one dot.*Use format='recordio' or 'tf",
        ),
        ("tab\t.png", "recordio", "contains a tab .* Use format='tfrecord' or 'webda"),
    ],
)
def test_pack_names_that_need_another_format(folder, packed, name, format, message):
    picture(1).save(folder / "train" / "apple" / name)

    with pytest.raises(ConfigError, match=message):
        packed(folder, format)

    for other in {*FORMATS} - {format}:
        again = find(str(packed(folder, other)))
        assert images_of(again) == images_of(find(str(folder)))


@pytest.mark.parametrize("format", FORMATS)
def test_names_may_be_long_and_of_any_bytes(folder, packed, format):
    path = folder / "train" / "apple"
    picture(1).save(path / f"{'long' * 60}.png")
    shutil.copy(path / "0 0.png", path / os.fsdecode(b"\xff \xc3\xa4.png"))

    assert images_of(find(str(packed(folder, format)))) == images_of(find(str(folder)))


@pytest.mark.parametrize("format", FORMATS)
def test_the_fingerprint_of_a_pack_is_that_of_its_files(folder, packed, format):
    target = packed(folder, format)
    fingerprint = find(str(target)).fingerprint()

    shards = find(str(target)).shards
    assert fingerprint.files == len(shards) == 2
    assert fingerprint.bytes == sum((target / name).stat().st_size for name in shards)

    description = target / "dataset.json"
    description.write_text(description.read_text().replace("apple", "grape"))
    assert find(str(target)).fingerprint().sha256 != fingerprint.sha256


@pytest.mark.parametrize("format", FORMATS)
def test_a_pack_is_told_by_its_files_before_anybody_reads_them(folder, packed, format):
    target = packed(folder, format)
    shards = [path for path in target.iterdir() if path.suffix in SUFFIXES]
    for shard in shards:
        shard.write_bytes(b"damaged")

    listing = find(str(target))

    assert listing.fingerprint().bytes == 7 * len(shards) > 0
    with pytest.raises(ConfigError, match="is damaged at byte 0"):
        listing.read()


@pytest.mark.parametrize("format", FORMATS)
def test_who_waits_for_a_pack_to_be_listed_may_end_it(folder, packed, format):
    target = packed(folder, format)
    calls = []

    def stop():
        calls.append(1)
        raise KeyboardInterrupt

    listing = find(str(target), on_wait=stop)
    assert not calls
    with pytest.raises(KeyboardInterrupt):
        listing.read()
    assert len(calls) == 1
