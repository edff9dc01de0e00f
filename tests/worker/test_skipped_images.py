"""What a run does not read: it is counted, named with its reason, or refused."""

import pytest

from nbkit.datasets import pack
from nbkit.datasets.manifest import Unreadable
from nbkit.errors import ConfigError
from nbkit.store.record import read_json
from nbkit.worker.data import source
from nbkit.worker.data.left_out import in_words
from tests.datasets.images import jpeg, write_table
from tests.datasets.odd_layouts import fill
from tests.datasets.odd_packs import tar_bytes
from tests.worker.images import CLASSES, config_of, names, picture

JPEG_START = b"\xff\xd8\xff"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"


def broken(root, *numbers):
    for number in numbers:
        (root / f"class {number:02d}" / "0.JPEG").write_bytes(b"no image")


def test_unreadable_images_stop_the_run_and_are_named(flat, new_run):
    broken(flat, 1, 3, 4, 8)
    rank = new_run()

    with pytest.raises(ConfigError) as raised:
        source.prepare(config_of(flat), rank)

    said = str(raised.value)
    assert "4 unreadable images" in said
    assert (
        "class 01/0.JPEG, class 03/0.JPEG, class 04/0.JPEG, class 08/0.JPEG (a format "
        "that Pillow does not support). Fix"
    ) in said
    assert "unreadable_images='skip'" in said
    recorded = read_json(rank.paths.worker)["data"]["unreadable"]
    assert recorded["count"] == 4
    assert [one["name"][:8] for one in recorded["images"]] == [
        "class 01", "class 03", "class 04", "class 08",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="4 unreadable images"):
        source.prepare(config_of(flat), new_run(rank=1))


@pytest.mark.parametrize("format", ["webdataset", "tfrecord"])
def test_for_unreadable_images_in_packed_files_a_new_copy_is_proposed(
    flat, tmp_path, new_run, format
):
    root = pack(flat, tmp_path / "packed", format, on_progress=lambda *_: None)
    (shard,) = (path for path in root.iterdir() if path.suffix.startswith(".t"))
    data = shard.read_bytes()
    shard.write_bytes(data.replace(JPEG_START, bytes(len(JPEG_START)), 1))

    with pytest.raises(ConfigError) as raised:
        source.prepare(config_of(root), new_run())

    said = str(raised.value)
    assert "has 1 unreadable image, but unreadable_images='stop' allows none" in said
    assert ". Copy the packed data again, or fix the images" in said


def test_unreadable_images_are_skipped_and_counted(flat, new_run, capsys):
    broken(flat, 1)
    config = config_of(flat, unreadable_images="skip")

    manifest = source.prepare(config, new_run())

    log = capsys.readouterr().out
    assert "data: 1 of 10 classes has no training image\n" in log
    assert "class 01/0.JPEG" not in names(manifest.train)
    assert [manifest.train.label(index) for index in range(2)] == [0, 2]
    described = source.describe(config, manifest)
    assert described["fingerprint"]["files"] == CLASSES
    assert described["unreadable"] == {
        "count": 1,
        "images": [
            {
                "name": "class 01/0.JPEG",
                "split": "train",
                "reason": "a format that Pillow does not support",
            }
        ],
    }


def test_the_record_names_no_more_than_a_hundred_unreadable_images(tmp_path, new_run):
    for number in range(150):
        folder = tmp_path / "data" / f"class {number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.png").write_bytes(b"no image")
        picture(number % 2).save(folder / "whole.png")
    config = config_of(tmp_path / "data", unreadable_images="skip")

    unreadable = source.describe(config, source.prepare(config, new_run()))[
        "unreadable"
    ]

    assert (unreadable["count"], len(unreadable["images"])) == (150, 100)


def test_files_that_are_passed_over_are_counted(flat, new_run, capsys):
    for name in ("1.gif", "2.gif", "notes.\x1b[31m"):
        (flat / "class 01" / name).write_bytes(b"")
    config = config_of(flat)

    manifest = source.prepare(config, new_run())

    said = capsys.readouterr().out
    assert "3 files are skipped: 2 *.gif, 1 *.\\x1b[31m\n" in said
    assert source.describe(config, manifest)["skipped_files"] == {
        "count": 3,
        "kinds": {"*.gif": 2, "*.\x1b[31m": 1},
    }


@pytest.mark.parametrize(
    ("left", "said"),
    [(0, "no training image remains"), (1, "training images of only 1 class remain")],
)
def test_fewer_than_two_classes_of_readable_images_are_refused(
    flat, new_run, left, said
):
    broken(flat, *range(left, CLASSES))
    rank = new_run()

    with pytest.raises(ConfigError, match=rf"{CLASSES - left} unreadable .*{said}"):
        source.prepare(config_of(flat, unreadable_images="skip"), rank)
    recorded = read_json(rank.paths.worker)["data"]["unreadable"]
    assert recorded["count"] == CLASSES - left


def test_every_reason_is_told_once_with_its_images(flat, new_run, capsys):
    broken(flat, 0, 1)
    (flat / "class 02" / "0.JPEG").write_bytes(b"")
    (flat / "class 03" / "1.JPEG").symlink_to("nothing")
    (flat / "class 04" / "0.JPEG").write_bytes(LFS)
    config = config_of(flat, unreadable_images="skip")

    manifest = source.prepare(config, new_run())

    assert (
        "data: 5 unreadable images are skipped: class 00/0.JPEG, class 01/0.JPEG (a "
        "format that Pillow does not support), class 02/0.JPEG (the file is empty), "
        "class 03/1.JPEG (a broken link), class 04/0.JPEG (a Git LFS pointer "
        "instead of the file; run 'git lfs pull' in its repository)\n"
    ) in capsys.readouterr().out
    images = source.describe(config, manifest)["unreadable"]["images"]
    assert [one["name"][:8] for one in images] == [
        "class 00", "class 02", "class 03", "class 04", "class 01",
    ]  # fmt: skip


NAMES = "0.jpg, 1.jpg, 2.jpg, 3.jpg, 4.jpg"


@pytest.mark.parametrize(
    ("reasons", "text"),
    [
        (["lacks 0 bytes", "lacks 1 bytes"], "0.jpg, 1.jpg (lacks 0 bytes)"),
        (["is empty"] * 5, f"{NAMES} (is empty)"),
        (["is empty"] * 6, f"{NAMES} and 1 more (is empty)"),
    ],
)
def test_unreadable_images_of_one_reason(reasons, text):
    images = [
        Unreadable(f"{number}.jpg", "train", reason)
        for number, reason in enumerate(reasons)
    ]

    assert in_words(images) == text


def test_many_reasons_are_cut_and_counted():
    letters = "abcdefghij"
    many = [Unreadable(f"{one}.jpg", "train", f"reason {one}") for one in letters]

    said = in_words([*many, many[-1]])

    assert said.startswith("j.jpg, j.jpg (reason j), a.jpg (reason a), ")
    assert said.endswith("g.jpg (reason g), 2 more images for 2 other reasons")
    assert in_words(many[:9]).endswith("h.jpg (reason h), i.jpg (reason i)")


@pytest.mark.parametrize("format", [None, "webdataset"])
def test_files_that_are_passed_over_are_counted_for_each_run(
    flat, tmp_path, new_run, format
):
    root = flat
    if format is not None:
        root = tmp_path / "packed"
        pack(flat, root, format, on_progress=lambda *_: None)

    def counted(name):
        manifest = source.prepare(config_of(root), new_run(name))
        return dict(manifest.skipped_files)

    suffix, kind = (".tar.gz", "*.gz") if format else (".gif", "*.gif")
    place = flat / "class 01" if format is None else root
    before = counted("first")
    (place / f"1{suffix}").write_bytes(b"")

    assert counted("second") == before | {kind: 1}
    assert counted("first") == before | {kind: 1}  # as a resumed run
    (place / f"1{suffix}").unlink()
    assert counted("third") == before


def test_classes_without_a_training_image_are_counted(tmp_path, flat, new_run, capsys):
    image = (flat / "class 00" / "0.JPEG").read_bytes()
    names_and_data = [("1.jpg", image), ("1.cls", b"0"), ("2.jpg", image)]
    (tmp_path / "gaps").mkdir()
    (tmp_path / "gaps" / "train.tar").write_bytes(
        tar_bytes(*names_and_data, ("2.cls", b"5"))
    )

    for root, count in ((tmp_path / "gaps", 4), (flat, 0)):
        config = config_of(root)
        manifest = source.prepare(config, new_run(root.name))

        said = "data: 4 of 6 classes have no training image\n"
        assert (said in capsys.readouterr().out) is bool(count)
        described = source.describe(config, manifest)
        assert described["classes_without_training_images"] == count


@pytest.mark.parametrize("format", [None, "webdataset", "tfrecord"])
def test_labels_without_a_training_image_are_counted(tmp_path, new_run, capsys, format):
    rows = ["1.png,train,0,0,1", "2.png,train,0,0,0", "3.png,val,1,0,1"]
    data = write_table(tmp_path / "data", rows, "file,split,a,b,c")
    if format:
        data = pack(data, tmp_path / "packed", format)
    config = config_of(data)

    manifest = source.prepare(config, new_run())

    said = "data: 2 of 3 labels have no training image\n"
    assert said in capsys.readouterr().out
    assert source.describe(config, manifest)["classes_without_training_images"] == 2


@pytest.mark.parametrize(
    "others", [("cat", "Cat"), ("cat ", "cat"), ("caf\xe9", "cafe\u0301")]
)
def test_classes_that_look_alike_are_named(tmp_path, new_run, capsys, others):
    for number, name in enumerate((*others, "dog")):
        fill(tmp_path, f"data/{name}/1.jpg", data=jpeg(number))
    config = config_of(pack(tmp_path / "data", tmp_path / "packed", "tfrecord"))
    assert "class names differ only in case" in capsys.readouterr().out

    manifest = source.prepare(config, new_run())

    first, second = sorted(others)
    (note,) = source.describe(config, manifest)["notes"]
    assert note.endswith(f"Unicode form: {first!r} and {second!r}")
    assert f"data: {note}\n" in capsys.readouterr().out


def test_columns_that_are_no_labels_are_noted(tmp_path, new_run, capsys):
    rows = ["1.png,1,-1,3", "2.png,0,1,4", "3.png,0,0,5"]
    data = write_table(tmp_path, rows, "file,a,b,age")
    config = config_of(data, uncertain_labels="ignore")

    manifest = source.prepare(config, new_run())

    notes = [
        "images with uncertain labels (1 of 3 in b) are omitted: "
        "uncertain_labels='ignore'",
        "columns that are not labels: age",
    ]
    assert source.describe(config, manifest)["notes"] == notes
    assert len(manifest.train) == 2
    said = capsys.readouterr().out
    assert all(f"data: {note}\n" in said for note in notes)


@pytest.mark.parametrize(
    ("fields", "is_said"),
    [({}, True), ({"evaluation_period_epochs": 1}, False), ({"task": "load"}, False)],
)
def test_evaluation_images_that_no_evaluation_reads_are_told(
    split, new_run, capsys, fields, is_said
):
    source.prepare(config_of(split, **fields), new_run())

    said = (
        "data: 10 evaluation images are not used: evaluation_period_epochs=None\n"
        in capsys.readouterr().out
    )
    assert said is is_said


def test_unreadable_evaluation_images_are_not_called_missing(split, opened):
    for folder in (split / "val").iterdir():
        (folder / "0.JPEG").write_bytes(LFS)

    with pytest.raises(ConfigError) as raised:
        opened(split, evaluation_period_epochs=1)

    first = ", ".join(f"val/class {number:02d}/0.JPEG" for number in range(5))
    assert (
        f"has no readable evaluation image: {first} and 5 more (a Git LFS pointer "
        "instead of the file; run 'git lfs pull' in its repository). Fix the images, "
    ) in str(raised.value)
