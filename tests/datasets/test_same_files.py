"""Images that are one file by a link: counted, and never refused."""

import os
import tarfile
from array import array

import pytest

from nbkit.datasets.find import find
from nbkit.datasets.same_files import SameFiles, same_files
from tests.datasets.odd_layouts import fill, two
from tests.datasets.odd_packs import ONE, OTHER, tar_bytes


def counted(root):
    listing = find(str(root))
    return same_files(listing, listing.fingerprint().file_numbers)


def symlink(link, target):
    link.symlink_to(target)


def hard_link(link, target):
    os.link(link.parent / target, link)


@pytest.mark.parametrize("linked", [symlink, hard_link])
def test_an_image_that_is_there_again_by_a_link_is_counted(tmp_path, linked):
    two(tmp_path)
    linked(tmp_path / "a" / "again.jpg", "1.jpg")
    linked(tmp_path / "b" / "other.jpg", "../a/1.jpg")

    # The first two names are those of the first that has another label.
    assert counted(tmp_path) == SameFiles(2, 1, ("a/1.jpg", "b/other.jpg"))


def test_links_to_one_file_elsewhere_are_the_same_file(tmp_path):
    fill(tmp_path, "elsewhere/1.jpg")
    two(tmp_path / "data")
    for name in ("a/x.jpg", "a/y.jpg"):
        (tmp_path / "data" / name).symlink_to(tmp_path / "elsewhere" / "1.jpg")

    assert counted(tmp_path / "data") == SameFiles(1, 0, ("a/x.jpg", "a/y.jpg"))


def test_an_image_for_training_and_for_evaluation_is_counted(tmp_path):
    two(tmp_path, "train/")
    two(tmp_path, "val/")
    os.link(tmp_path / "train" / "a" / "1.jpg", tmp_path / "val" / "a" / "9.jpg")

    assert counted(tmp_path) == SameFiles(1, 0, ("train/a/1.jpg", "val/a/9.jpg"))


def test_single_links_copies_and_links_to_nothing_are_not_the_same_file(tmp_path):
    two(tmp_path / "data")
    for name in ("gone.jpg", "missing.jpg"):
        (tmp_path / "data" / "a" / name).symlink_to("nothing")
    fill(tmp_path, "elsewhere/1.jpg")
    os.link(tmp_path / "elsewhere" / "1.jpg", tmp_path / "data" / "b" / "3.jpg")

    assert counted(tmp_path / "data") == SameFiles()


def test_files_without_a_number_are_not_the_same_file(tmp_path, monkeypatch):
    two(tmp_path)
    os.link(tmp_path / "a" / "1.jpg", tmp_path / "a" / "2.jpg")
    listing = find(str(tmp_path))
    stat = os.stat

    def unnumbered(path, **options):
        found = stat(path, **options)
        return os.stat_result((found[0], 0, *found[2:]), {"st_mtime_ns": 1})

    monkeypatch.setattr(os, "stat", unnumbered)
    numbers = listing.fingerprint().file_numbers
    monkeypatch.undo()

    assert numbers == array("q", [0, 0, 0])
    assert same_files(listing, numbers) == SameFiles()


def test_different_files_with_one_number_are_not_the_same_file(tmp_path, monkeypatch):
    two(tmp_path)
    fill(tmp_path, "a/2.jpg", data=b"of another size")
    listing = find(str(tmp_path))
    stat = os.stat

    def all_alike(path, **options):
        found = stat(path, **options)
        times = {"st_mtime_ns": found.st_mtime_ns, "st_ctime_ns": found.st_ctime_ns}
        return os.stat_result((found[0], 7, *found[2:]), times)

    monkeypatch.setattr(os, "stat", all_alike)
    numbers = listing.fingerprint().file_numbers
    monkeypatch.undo()

    assert same_files(listing, numbers) == SameFiles()


def test_the_fingerprint_is_the_same_with_links_and_with_copies(tmp_path):
    for kind in ("links", "copies"):
        two(tmp_path / kind)
    os.link(tmp_path / "links" / "a" / "1.jpg", tmp_path / "links" / "b" / "1.jpg")
    fill(tmp_path, "copies/b/1.jpg")

    links, copies = (find(str(tmp_path / k)).fingerprint() for k in ("links", "copies"))

    assert links.sha256 == copies.sha256


def test_images_of_a_table_that_are_one_file_are_counted(tmp_path):
    fill(tmp_path, "1.jpg", "2.jpg")
    (tmp_path / "3.jpg").symlink_to("1.jpg")
    table = tmp_path / "labels.csv"
    table.write_text("file,odd,even\n1.jpg,1,0\n2.jpg,0,1\n3.jpg,0,1\n")

    assert counted(table) == SameFiles(1, 1, ("1.jpg", "3.jpg"))


def test_hard_links_in_a_tar_file_are_counted(tmp_path):
    links = [(tarfile.LNKTYPE, "3.jpg", "2.jpg"), (tarfile.LNKTYPE, "3.cls", "1.cls")]
    fill(tmp_path, "train.tar", data=tar_bytes(*ONE, *OTHER, links=links))

    assert counted(tmp_path) == SameFiles(1, 1, ("2.jpg", "3.jpg"))
