"""Folders as people have them, made by code, and what is right for each.

What is right comes from how a layout was made: which images it holds, in which classes
and splits, or what there is to say of it.
"""

import os
import socket
from collections import Counter
from dataclasses import dataclass, field

from tests.datasets.images import jpeg

JPEG = jpeg(1)


@dataclass(frozen=True)
class Read:
    """What is right: names of images with their label, and what is passed over."""

    train: dict
    evaluation: dict = field(default_factory=dict)
    passed_over: dict = field(default_factory=dict)


FOLDERS = {}
PACKS = {}
"""By what is odd: a function that makes it, and a `Read` or what the refusal says."""


def folder(right):
    """Register a function that makes an odd folder of images."""
    return _registered(FOLDERS, right)


def packed(right):
    """Register a function that makes an odd folder of packed files."""
    return _registered(PACKS, right)


def _registered(layouts, right):
    def register(make):
        layouts[make.__name__] = make, right
        return make

    return register


def fill(root, *names, data=JPEG):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def two(root, prefix=""):
    fill(root, f"{prefix}a/1.jpg", f"{prefix}b/2.jpg")


TWO = {"a/1.jpg": 0, "b/2.jpg": 1}


def below(folder, images=None):
    return {f"{folder}/{name}": label for name, label in (images or TWO).items()}


# Splits


@folder(Read(below("Train"), below("Val")))
def splits_in_capitals(root):
    two(root, "Train/")
    two(root, "Val/")


@folder(Read(below("training"), below("TESTING")))
def a_test_is_for_evaluation_where_nothing_else_is(root):
    two(root, "training/")
    two(root, "TESTING/")


@folder(Read(below("train"), below("valid")))
def valid(root):
    two(root, "train/")
    two(root, "valid/")


@folder(Read(below("train"), below("dev")))
def dev(root):
    two(root, "train/")
    two(root, "dev/")


@folder(Read(below("train"), below("val"), {"*.jpg in test/": 2}))
def a_test_beside_val(root):
    for split in ("train", "val", "test"):
        two(root, f"{split}/")


@folder(Read(below("train"), below("val"), {"*.jpg in test/": 1}))
def a_test_without_classes(root):
    two(root, "train/")
    two(root, "val/")
    fill(root, "test/1.jpg")


@folder(r"val/ looks like a split, but no folder is called train or training")
def no_train(root):
    two(root, "test/")
    two(root, "val/")


@folder(r"test/ looks like a split, but train/ has no folder of a class")
def splits_without_classes(root):
    fill(root, "train/1.jpg", "test/1.jpg")


@folder(r"val/ looks like a split, but no folder is called train")
def val_among_classes(root):
    two(root)
    two(root, "val/")


@folder(r"val/ holds images, but no folder of a class")
def val_without_classes(root):
    two(root, "train/")
    fill(root, "val/1.jpg")


@folder(r"(train and Train|Train and train) both name the train split")
def two_folders_for_training(root):
    two(root, "train/")
    two(root, "Train/")


@folder(r"train/ looks like a split, .* beside others with images \(plane\)")
def a_class_called_train_with_folders(root):
    fill(root, "train/steam/1.jpg", "train/2.jpg", "plane/1.jpg")


@folder(Read(below("train"), passed_over={"*.jpg in extra/": 1}))
def another_folder_beside_train(root):
    two(root, "train/")
    fill(root, "extra/1.jpg")


@folder(Read(below("train"), below("valid")))
def an_empty_folder_of_another_name_of_a_split(root):
    two(root, "train/")
    two(root, "valid/")
    (root / "val").mkdir()


@folder(Read(below("train"), passed_over={"*.jpg in vall/": 2}))
def a_split_whose_name_is_misspelt(root):
    two(root, "train/")
    two(root, "vall/")


@folder(Read(below("train"), passed_over={"*.jpg in test/": 2}))
def a_test_of_other_folders(root):
    two(root, "train/")
    fill(root, "test/unknown/1.jpg", "test/2.jpg")


@folder(Read(below("train"), {"test/b/1.jpg": 1}))
def a_test_with_an_empty_folder(root):
    two(root, "train/")
    fill(root, "test/b/1.jpg", "test/notes/1.txt")


@folder(r"val/ has 1 class that train/ has not \(c\)")
def a_val_of_other_classes(root):
    two(root, "train/")
    fill(root, "val/c/1.jpg")


@folder(Read({"invalid/1.jpg": 0, "valid/1.jpg": 1}))
def a_class_called_valid(root):
    fill(root, "valid/1.jpg", "invalid/1.jpg")


@folder(r"Val/ looks like a split, but Train/ has no folder of a class")
def flat_splits(root):
    fill(root, "Train/1.jpg", "Val/1.jpg")


@folder(Read(TWO, passed_over={"*.tar in ./": 1}))
def a_link_to_nothing_called_like_a_shard(root):
    two(root)
    (root / "backup.tar").symlink_to("nothing.tar")


@folder(Read({"plane/1.jpg": 0, "train/1.jpg": 1}))
def a_class_called_train(root):
    fill(root, "train/1.jpg", "plane/1.jpg")


@folder(Read(below("train", {"test/1.jpg": 0, "tube/1.jpg": 1})))
def a_class_called_test_below_train(root):
    fill(root, "train/test/1.jpg", "train/tube/1.jpg")


@folder(r"the class folders look like splits \(test_set, training_set\)")
def classes_with_words_of_splits(root):
    two(root, "training_set/")
    two(root, "test_set/")


@folder(r"the class folders look like splits \(train2017, val2017\)")
def classes_with_years(root):
    fill(root, "train2017/1.jpg", "val2017/2.jpg")


@folder(r"the class folders look like splits \(train, val\)")
def splits_within_a_split(root):
    two(root, "train/train/")
    two(root, "train/val/")


@folder(r"cats looks like a class, but holds splits")
def splits_within_classes(root):
    for name in ("cats", "dogs"):
        fill(root, f"{name}/train/1.jpg", f"{name}/test/2.jpg")


@folder(Read(TWO, passed_over={"*.jpg in ./": 1}))
def an_image_beside_the_classes(root):
    two(root)
    fill(root, "README.md", "1.jpg")


@folder(
    Read(
        below("train"),
        below("val"),
        {"*.jpg in samples/": 1, "*.png in train/": 1, "*.jpg in val/": 1},
    )
)
def images_beside_the_splits(root):
    two(root, "train/")
    two(root, "val/")
    fill(root, "samples/1.jpg", "samples/deep/2.jpg", "labels/1.txt")
    fill(root, "train/1.png", "val/1.jpg")


# Files


SUFFIXES = {"*.gif": 2, "*.jfif": 1, "*.tar.gz": 1, "with no suffix": 1}
HIDDEN = {"hidden *.jpg": 1, "hidden folders": 1}


@folder(Read(TWO, passed_over=SUFFIXES | HIDDEN))
def other_suffixes(root):
    two(root)
    fill(root, "a/1.gif", "a/2.GIF", "b/deep/1.jfif", "a/old.tar.gz", "b/LICENSE")
    fill(root, "a/.hidden", "a/.folder/1.jpg", "a/._1.jpg")


@folder(r"1 class without images \(b\).*found 2 \*\.gif; add images")
def a_class_of_other_suffixes(root):
    fill(root, "a/1.jpg", "b/1.gif", "b/2.gif")


@folder(r"1\.jpg is not a regular file, but a pipe or device; remove it")
def a_pipe(root):
    two(root)
    os.mkfifo(root / "a" / "pipe 1.jpg")


@folder(r"socket\.jpg is not a regular file")
def a_socket(root):
    two(root)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(root / "a" / "socket.jpg"))


@folder(r"d\.jpg is not a regular file")
def a_link_to_a_device(root):
    two(root)
    (root / "a" / "d.jpg").symlink_to("/dev/zero")


@folder(Read({**TWO, "a/gone.jpg": 0, "a/self.jpg": 0}))
def links_to_nothing(root):
    two(root)
    (root / "a" / "gone.jpg").symlink_to("nothing.jpg")
    (root / "a" / "self.jpg").symlink_to("self.jpg")


# Links


@folder(r"a and \S+a/loop are one folder, by a link")
def a_loop(root):
    two(root)
    (root / "a" / "loop").symlink_to(".")


@folder(r"a and \S+a/l[12] are one folder, by a link")
def two_loops(root):
    two(root)
    for name in ("l1", "l2"):
        (root / "a" / name).symlink_to(".")


@folder(r"up are one folder, by a link")
def a_link_upwards(root):
    two(root)
    (root / "a" / "deep").mkdir()
    (root / "a" / "deep" / "up").symlink_to("../..")


@folder(r"a/other and \S+b are one folder, by a link")
def a_link_to_another_class(root):
    two(root)
    (root / "a" / "other").symlink_to("../b")


@folder(r"a/l[12] and \S+a/l[12] are one folder, by a link")
def two_links_to_one_folder(root):
    two(root)
    fill(root, ".shared/1.jpg")
    for name in ("l1", "l2"):
        (root / "a" / name).symlink_to("../.shared")


@folder(r"train and \S+val are one folder, by a link")
def a_split_that_is_a_link_to_the_other(root):
    two(root, "train/")
    (root / "val").symlink_to("train")


@folder(r"train/a/more and \S+val/a are one folder, by a link")
def a_link_to_a_class_of_the_other_split(root):
    two(root, "train/")
    two(root, "val/")
    (root / "train" / "a" / "more").symlink_to("../../val/a")


@folder(Read(below("train"), below("val")))
def a_link_that_leads_elsewhere(root):
    two(root, "train/")
    two(root, "val/")
    (root / "everything").symlink_to("/")


@folder(Read({"a/1.jpg": 0, "b/1.jpg": 1}, passed_over={"hidden folders": 1}))
def classes_that_are_links(root):
    fill(root, ".elsewhere/x/1.jpg", ".elsewhere/y/1.jpg")
    (root / "a").symlink_to(".elsewhere/x")
    (root / "b").symlink_to(".elsewhere/y")


# What is no folder of images


@folder(
    r"1 packed file that is compressed \(1 \*\.tar\.gz\), .*; unpack it to train\.tar"
)
def a_compressed_shard(root):
    fill(root, "train.tar.gz")


@folder(r"1 packed file that is compressed \(1 \*\.tgz\), .*; unpack it to train\.tar")
def a_tgz(root):
    fill(root, "train.tgz")


@folder(r"2 classes without images .*found 2 \*\.jfif")
def classes_without_images_beside_the_archive_that_held_them(root):
    fill(root, "a/1.jfif", "b/1.jfif", "raw.tar.gz")


@folder(r"0 class folders .*found 1 \*\.zip: unpack compressed files; put")
def a_zip(root):
    fill(root, "images.zip")


@folder(r"found 1 \*\.tfrec: name TFRecord files \*\.tfrecord; put")
def a_tfrec(root):
    fill(root, "train.tfrec")


@folder(r"1 class folder in .*found 2 \*\.tar: give the folder that holds the packed")
def shards_one_folder_down(root):
    fill(root, "shards/0.tar", "shards/1.tar")


@folder(r"holds TFRecord \(\*\.tfrecord\): variables.data-00000-of-00001 and images in")
def a_checkpoint_beside_classes(root):
    two(root)
    fill(root, "variables.data-00000-of-00001")


def counted(images):
    return Counter((sample.name, sample.label) for sample in images)
