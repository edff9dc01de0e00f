"""What happens to the data before training: once for all, and the same to all ranks."""

import io
import os
import sys
from pathlib import Path

import pytest

from nbkit.config import ExperimentConfig
from nbkit.datasets import webdataset
from nbkit.errors import ConfigError
from nbkit.store.heartbeat import HeartbeatBoard
from nbkit.store.paths import manifests_folder
from nbkit.worker.data import source
from tests.datasets.images import jpeg
from tests.datasets.odd_files import odd_files
from tests.datasets.odd_layouts import fill
from tests.datasets.odd_packs import tar_bytes
from tests.worker.images import CLASSES, config_of, names, picture


def test_synthetic_images_need_no_manifest(new_run):
    rank = new_run()

    assert source.prepare(ExperimentConfig(), rank) is None
    assert not rank.paths.manifest.exists()


def test_every_rank_reads_the_same_manifest(split, new_run):
    first = source.prepare(config_of(split), new_run())
    second = source.prepare(config_of(split), new_run(rank=1))

    assert names(first.train) == names(second.train)
    assert names(first.evaluation) == names(second.evaluation)
    assert len(first.train) == len(first.evaluation) == CLASSES


def test_runs_with_the_same_data_share_one_look_at_them(flat, new_run, capsys):
    source.prepare(config_of(flat), new_run("first"))
    assert "checked 10 of 10 images" in capsys.readouterr().out

    source.prepare(config_of(flat), new_run("second"))

    assert capsys.readouterr().out == ""
    (known,) = manifests_folder().iterdir()
    assert new_run("first").paths.manifest.samefile(known)
    assert new_run("second").paths.manifest.samefile(known)


def test_a_file_that_was_written_to_is_looked_at_anew(flat, new_run):
    before = source.prepare(config_of(flat), new_run("first"))
    picture(77, (60, 50)).save(flat / "class 03" / "0.JPEG")

    after = source.prepare(config_of(flat), new_run("second"))

    assert (before.train.decoding(3).width, after.train.decoding(3).width) == (48, 60)
    assert len(list(manifests_folder().iterdir())) == 2


def test_a_manifest_that_cannot_be_read_is_made_anew(flat, new_run):
    source.prepare(config_of(flat), new_run("first"))
    (known,) = manifests_folder().iterdir()
    known.write_text("{}")

    manifest = source.prepare(config_of(flat), new_run("second"))

    assert len(manifest.train) == CLASSES


def test_the_same_folder_by_another_path_is_read_by_that_path(flat, tmp_path, new_run):
    source.prepare(config_of(flat), new_run("first"))
    (tmp_path / "link").symlink_to(flat)

    manifest = source.prepare(config_of(tmp_path / "link"), new_run("second"))

    assert manifest.root == tmp_path / "link"


def test_a_store_without_hard_links_gets_a_copy(flat, new_run, monkeypatch):
    def refuse(self, target):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    rank = new_run()

    manifest = source.prepare(config_of(flat), rank)

    assert len(manifest.train) == CLASSES
    assert list(rank.paths.root.iterdir()) == [rank.paths.manifest]


def test_a_name_that_is_no_utf8_is_spelt_out_in_the_log(flat, new_run, monkeypatch):
    (flat / "class 01" / os.fsdecode(b"caf\xe9\x1b.jpg")).write_bytes(b"no image")
    log = io.BytesIO()
    strict = io.TextIOWrapper(log, encoding="utf-8", errors="strict")
    monkeypatch.setattr(sys, "stdout", strict)

    source.prepare(config_of(flat, unreadable_images="skip"), new_run())

    assert b"class 01/caf\\udce9\\x1b.jpg (a format that Pillow does" in log.getvalue()


def test_grayscale_of_more_than_8_bits_is_counted_in_log_and_record(
    flat, new_run, capsys
):
    for number, kind in enumerate(("grey 16 bits", "grey 12 bits in 16")):
        (flat / "class 01" / f"{number}.tif").write_bytes(odd_files()[kind].data)
    config = config_of(flat)

    for name in ("first", "second"):  # which finds what the first has found out
        manifest = source.prepare(config, new_run(name))

        assert (
            "data: 2 grayscale images with more than 8 bits per pixel are reduced to 8 "
            "bits, 1 of them to 16 gray levels or fewer: class 01/1.tif\n"
            in capsys.readouterr().out
        )
    described = source.describe(config, manifest)["high_bit_depth"]
    assert described == {"count": 2, "coarse": 1, "first": ["class 01/1.tif"]}


def test_packed_files_are_read_by_the_first_run_alone(tmp_path, new_run, monkeypatch):
    images = [("1.jpg", jpeg(0)), ("1.cls", b"0"), ("2.jpg", jpeg(1)), ("2.cls", b"1")]
    fill(tmp_path, "data/train.tar", data=tar_bytes(*images))
    config = config_of(tmp_path / "data")
    source.prepare(config, new_run("first"))
    # They may be large, and have been put out of the page cache for a cold read.
    monkeypatch.setattr(webdataset, "split_name", None)

    assert len(source.prepare(config, new_run("second")).train) == 2


def test_a_resumed_run_keeps_its_manifest_while_the_images_stay(flat, new_run):
    source.prepare(config_of(flat), new_run())
    # Written again, as they were: another time, the same images.
    for path in flat.rglob("*.JPEG"):
        path.write_bytes(path.read_bytes())

    manifest = source.prepare(config_of(flat), new_run())

    assert len(manifest.train) == CLASSES
    assert len(list(manifests_folder().iterdir())) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("remove", r"1 image gone \(class 02/0.JPEG\)"),
        ("add", r"2 images new \(class 02/1.JPEG, \.\.\.\)"),
        ("replace", r"[\d,]+ bytes before and [\d,]+ now"),
    ],
)
def test_a_resumed_run_with_other_images_is_refused(flat, new_run, change, said):
    source.prepare(config_of(flat), new_run())
    if change == "remove":
        (flat / "class 02" / "0.JPEG").unlink()
        (flat / "class 02" / "0.JPEG").parent.rmdir()
    elif change == "add":
        picture(8).save(flat / "class 02" / "1.JPEG")
        picture(9).save(flat / "class 02" / "2.JPEG")
    else:
        picture(8, (90, 90)).save(flat / "class 02" / "0.JPEG")

    with pytest.raises(ConfigError, match=f"changed since the run started.*{said}"):
        source.prepare(config_of(flat), new_run())


def test_the_supervisor_sees_that_looking_goes_on(tmp_path, new_run):
    for number in range(100):
        folder = tmp_path / "data" / f"class {number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        picture(number).save(folder / f"{number}.png")
    board = HeartbeatBoard.create(1)

    source.prepare(config_of(tmp_path / "data"), new_run(board=board))

    beats = board.read()[0].beats
    board.close()
    assert beats >= 4  # of these one for every 32 images


@pytest.mark.parametrize(
    "fields",
    [
        {"label_smoothing": 0.1},
        {"target_accuracy": 0.9, "evaluation_period_epochs": 1},
    ],
)
def test_what_means_nothing_with_several_labels_is_refused(tmp_path, new_run, fields):
    for name in ("a", "b"):
        picture(1).save(tmp_path / f"{name}.png")
    (tmp_path / "labels.csv").write_text("file,odd,even\na.png,1,0\nb.png,0,1\n")
    name = next(iter(fields))

    with pytest.raises(ConfigError, match=rf"{name}=.*2 labels per.*[sS]et {name}="):
        source.prepare(config_of(tmp_path / "labels.csv", **fields), new_run())
