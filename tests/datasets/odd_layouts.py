"""Folders of images as people have them, and what is right for each.

A line of a layout is a file, an empty folder (with a slash at its end), or a link
(``link -> target``). What is right comes from how a layout was made: which images it
holds, in which classes and splits, or what there is to say of it.
"""

from collections import Counter
from dataclasses import dataclass, field

from tests.datasets.images import jpeg

JPEG = jpeg(1)
TWO = {"a/1.jpg": 0, "b/2.jpg": 1}


@dataclass(frozen=True)
class Read:
    """What is right: names of images with their label, and what is not read."""

    train: dict
    evaluation: dict = field(default_factory=dict)
    skipped_files: dict = field(default_factory=dict)
    notes: tuple = ()


def fill(root, *lines, data=JPEG):
    root.mkdir(parents=True, exist_ok=True)
    for line in lines:
        name, _, target = line.partition(" -> ")
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if target:
            path.symlink_to(target)
        elif name.endswith("/"):
            path.mkdir()
        else:
            path.write_bytes(data)


def two(*prefixes):
    """Return the images of two classes, in each of some folders."""
    return [f"{prefix}{name}" for prefix in prefixes or ("",) for name in TWO]


def below(folder, images=None):
    return {f"{folder}/{name}": label for name, label in (images or TWO).items()}


def unread(name):
    return (f"skipped folders with images: {name}",)


def counted(images):
    return Counter((sample.name, sample.label) for sample in images)


SPLITS = two("train/", "val/")
TRAIN, VAL = below("train"), below("val")

FOLDERS = {
    "splits in capitals": (two("Train/", "Val/"), Read(below("Train"), below("Val"))),
    "test alone": (
        two("training/", "TESTING/"),
        Read(below("training"), below("TESTING")),
    ),
    "dev": (two("train/", "dev/"), Read(TRAIN, below("dev"))),
    "test beside val": ([*SPLITS, *two("test/")], Read(TRAIN, VAL, {}, unread("test"))),
    "test without classes": (
        [*SPLITS, "test/1.jpg", "test/x/y/2.jpg"],
        Read(TRAIN, VAL, {}, unread("test")),
    ),
    "test of other classes": (
        [*two("train/"), "test/unknown/1.jpg", "test/2.jpg"],
        Read(TRAIN, notes=unread("test")),
    ),
    "test with an empty class": (
        [*two("train/"), "test/b/1.jpg", "test/notes/1.txt"],
        Read(TRAIN, {"test/b/1.jpg": 1}),
    ),
    "misspelt split": (two("train/", "vall/"), Read(TRAIN, notes=unread("vall"))),
    "folders beside splits": (
        [*SPLITS, "extra/1.jpg", "labels/1.txt", "everything -> /"],
        Read(TRAIN, VAL, {}, unread("extra")),
    ),
    "no train": (two("test/", "val/"), "val/ looks like a split, but no folder is cal"),
    "val among classes": (two("", "val/"), "val/ looks like a split, but no folder is"),
    "flat splits": (
        ["training/1.jpg", "test/1.jpg"],
        "test/ looks like a split, but training/ has no .*mages into training/<class>/",
    ),
    "flat val": ([*two("train/"), "val/1.jpg"], "val/ contains images, but no class"),
    "two for training": (
        two("train/", "Train/"),
        "Train and train are folders of the same split",
    ),
    "val of other classes": (
        [*two("train/"), "val/c/1.jpg"],
        r"val/ has 1 class that train/ lacks \(c\)",
    ),
    "class valid": (
        ["valid/1.jpg", "invalid/1.jpg"],
        Read({"invalid/1.jpg": 0, "valid/1.jpg": 1}),
    ),
    "class train": (
        ["train/1.jpg", "plane/1.jpg"],
        Read({"plane/1.jpg": 0, "train/1.jpg": 1}),
    ),
    "class train with a folder": (
        ["train/steam/1.jpg", "train/2.jpg", "plane/1.jpg"],
        "1 class folder in .*/train, but",
    ),
    "class test in train": (
        ["train/test/1.jpg", "train/tube/1.jpg"],
        Read(below("train", {"test/1.jpg": 0, "tube/1.jpg": 1})),
    ),
    "words of splits": (
        two("training_set/", "test_set/"),
        r"the class folders look like splits \(test_set, training_set\)",
    ),
    "years": (
        ["train2017/1.jpg", "val2017/2.jpg"],
        r"the class folders look like splits \(train2017, val2017\)",
    ),
    "splits in a split": (
        two("train/train/", "train/val/"),
        r"the class folders look like splits \(train, val\)",
    ),
    "splits in classes": (
        [f"{name}/{split}/1.jpg" for name in "ab" for split in ("train", "test")],
        "a looks like a class folder, but contains splits",
    ),
    # Files
    "images and archives beside classes": (
        [*two(), "README.md", "1.jpg", "c.ZIP"],
        Read(TWO, {}, {"*.jpg": 1, "*.zip": 1}),
    ),
    "images and archives in splits": (
        [*SPLITS, "train.tar.gz", "train/1.png", "val/c.7z", "val/notes.txt"],
        Read(TRAIN, VAL, {"*.gz": 1, "*.png": 1, "*.7z": 1}),
    ),
    "other suffixes and hidden names": (
        [
            *two(),
            *("a/1.gif", "a/2.GIF", "b/deep/1.jfif", "a/scan.0001", "b/LICENSE"),
            *("a/.hidden", "a/.folder/1.jpg", "a/._1.jpg", ".git/1.jpg", "lost+found/"),
        ],
        Read(TWO, {}, {"*.gif": 2, "*.jfif": 1, "with no suffix": 2}),
    ),
    "class of another suffix": (
        ["a/1.jpg", "b/1.gif", "b/2.gif"],
        r"1 class without images \(b; image suffixes: .*found 2 \*\.gif\. Add images",
    ),
    "class of hidden images": (
        ["a/1.jpg", "b/._1.jpg"],
        r"1 class without images \(b; image suffixes: ",
    ),
    "link to a device": (
        [*two(), "a/d.jpg -> /dev/zero"],
        r"d\.jpg is not a regular file, but a pipe or device\. Remove it",
    ),
    "images by links to nothing": (
        [*two(), "a/gone.jpg -> nothing.jpg", "a/self.jpg -> self.jpg"],
        Read({**TWO, "a/gone.jpg": 0, "a/self.jpg": 0}),
    ),
    # Links
    "loop": ([*two(), "a/loop -> ."], r"a and \S+a/loop are the same folder"),
    "link upwards": ([*two(), "a/deep/up -> ../.."], "up are the same folder"),
    "link to another class": (
        [*two(), "a/other -> ../b"],
        r"a/other and \S+b are the same folder",
    ),
    "two links to one folder": (
        [*two(), ".shared/1.jpg", "a/l1 -> ../.shared", "a/l2 -> ../.shared"],
        r"a/l[12] and \S+a/l[12] are the same folder",
    ),
    "split by a link to the other": (
        [*two("train/"), "val -> train"],
        r"train and \S+val are the same folder",
    ),
    "link to a class of the other split": (
        [*SPLITS, "train/a/more -> ../../val/a"],
        r"train/a/more and \S+val/a are the same folder",
    ),
    "classes by links": (
        [".x/1.jpg", ".y/1.jpg", "a -> .x", "b -> .y"],
        Read({"a/1.jpg": 0, "b/1.jpg": 1}),
    ),
    "class by a link to nothing": (
        ["a/1.jpg", "c/3.jpg", "b -> gone"],
        r"b is a link to 'gone', which cannot be followed \(No such file or dir",
    ),
    "class by a link to itself": (
        [*two("train/"), "train/st. bernard -> st. bernard"],
        r"train/st\. bernard is a link to 'st\. bernard', which .*Too many levels of",
    ),
    "evaluation class by a link to nothing": (
        [*two("train/"), "val/a/1.jpg", "val/b -> /gone/b"],
        "val/b is a link to '/gone/b', which cannot be followed",
    ),
    "split by a link to nothing": (
        [*two("train/"), "val -> /gone/val"],
        "val is a link to '/gone/val', .*Restore its target",
    ),
    "other links to nothing": (
        [*two("train/"), "gone -> nothing", "train/.gone -> nothing"],
        Read(TRAIN),
    ),
    # What is no folder of images
    "zip": (["images.zip"], r"0 class folders .*found 1 \*\.zip \(unpack archives; of"),
    "compressed shards": (["0.tar.gz"], r"0 class folders .*found 1 \*\.gz \(unpack a"),
    "images alone": (["1.jpg"], r"has 0 class folders.*train/<class>/"),
    "shards one folder down": (
        ["shards/0.tar", "shards/1.tar"],
        r"1 class folder in .*found 2 \*\.tar \(.*of WebDataset.* pass the folder",
    ),
    "checkpoint beside classes": (
        [*two(), "variables.data-00000-of-00001"],
        r"contains TFRecord \(\*\.tfrecord\): variables.data-00000-of-00001 and",
    ),
    "shard by a link to nothing beside classes": (
        [*two(), "backup.tar -> nothing.tar"],
        r"backup\.tar is not a regular file, but .* a broken link\. Remove it",
    ),
}
