"""Classes and splits of which something is missing, and what is beside them."""

from tests.datasets.odd_layouts import TWO, Read, below, fill, folder, two


@folder(r"b is a link to 'gone', which cannot be followed \(No such file or dir")
def a_class_that_is_a_link_to_nothing(root):
    two(root)
    fill(root, "c/3.jpg")
    (root / "b" / "2.jpg").unlink()
    (root / "b").rmdir()
    (root / "b").symlink_to("gone")


@folder(r"train/st\. bernard is a link to 'st\. bernard', which .*Too many levels of")
def a_class_that_is_a_link_to_itself(root):
    two(root, "train/")
    (root / "train" / "st. bernard").symlink_to("st. bernard")


@folder(r"val/b is a link to '/gone/b', which cannot be followed")
def a_class_of_the_evaluation_that_is_a_link_to_nothing(root):
    two(root, "train/")
    fill(root, "val/a/1.jpg")
    (root / "val" / "b").symlink_to("/gone/b")


@folder(r"val is a link to '/gone/val', .* a part of the data is missing; restore")
def a_split_that_is_a_link_to_nothing(root):
    two(root, "train/")
    (root / "val").symlink_to("/gone/val")


@folder(Read(below("train"), passed_over={"*.png in train/": 1}))
def links_to_nothing_that_are_no_class(root):
    two(root, "train/")
    for name in ("gone", "train/.gone", "train/gone.png"):
        (root / name).symlink_to("nothing")


@folder(Read(below("train"), below("val")))
def files_of_no_class_that_are_links_to_nothing(root):
    two(root, "train/")
    two(root, "val/")
    for name in ("train/README.md", "train/LICENSE", "val/val_annotations.txt"):
        (root / name).symlink_to("../.git/annex/objects/gone")


@folder(Read(TWO))
def files_beside_classes_that_are_links_to_nothing(root):
    two(root)
    for name in ("Makefile", "labels.CSV", "index.json", "tool.py"):
        (root / name).symlink_to(".git/annex/objects/gone")


@folder(Read(below("train"), below("val"), {"test/ by a link to nothing": 1}))
def a_test_that_is_a_link_to_nothing_beside_val(root):
    two(root, "train/")
    two(root, "val/")
    (root / "test").symlink_to("/gone/test")


@folder(r"Test is a link to '/gone/test', which cannot be followed")
def a_test_that_is_a_link_to_nothing_beside_an_empty_val(root):
    two(root, "train/")
    (root / "val").mkdir()
    (root / "Test").symlink_to("/gone/test")


@folder(Read(TWO, passed_over={"*.zip in ./": 1, "*.tar.gz in ./": 1}))
def archives_beside_classes(root):
    two(root)
    fill(root, "c.ZIP", "d.tar.gz", "README.md")


@folder(
    Read(
        below("train"),
        below("val"),
        {
            "*.zip in ./": 1,
            "*.zip in train/": 1,
            "*.7z in val/": 1,
            "*.tar in more/": 1,
        },
    )
)
def archives_beside_splits(root):
    two(root, "train/")
    two(root, "val/")
    fill(root, "train.zip", "train/c.zip", "val/c.7z", "more/c.tar", "more/labels.txt")


@folder(Read(below("train"), below("val"), {"*.tar.gz in ./": 1, "*.tgz in train/": 1}))
def the_archive_that_held_the_splits(root):
    two(root, "train/")
    two(root, "val/")
    fill(root, "train.tar.gz", "train/c.tgz")


@folder(Read(below("train"), below("val"), {"*.jpg in test/": 2, "*.zip in test/": 1}))
def a_deep_test_that_is_not_used(root):
    two(root, "train/")
    two(root, "val/")
    fill(root, "test/x/1.jpg", "test/x/y/z/2.jpg", "test/x/y/3.zip", "test/x/notes.txt")


@folder(Read(below("train"), below("val"), {"*.jpg in test/": 2, "hidden folders": 1}))
def a_test_that_is_not_used_by_a_link(root):
    two(root, "train/")
    two(root, "val/")
    two(root, ".elsewhere/")
    (root / "test").symlink_to(".elsewhere")


@folder(Read(below("train"), below("val"), {"*.jpg in test/": 1, "hidden folders": 1}))
def a_test_that_is_not_used_with_links(root):
    two(root, "train/")
    two(root, "val/")
    fill(root, ".elsewhere/1.jpg", ".elsewhere/deep/2.jpg", "test/y/notes.txt")
    for name in ("test/x", "test/y/x"):
        (root / name).symlink_to(root / ".elsewhere")


@folder(Read(TWO))
def what_a_disk_has_in_its_top_folder(root):
    two(root)
    (root / "lost+found").mkdir()


@folder(
    Read(
        below("train"),
        below("val"),
        {
            "hidden folders": 3,
            "hidden *.jpg in ./": 1,
            "hidden *.png in train/": 1,
        },
    )
)
def hidden_names_beside_classes_and_splits(root):
    two(root, "train/")
    two(root, "val/")
    fill(root, ".git/1.jpg", "train/.class/1.jpg", "val/.class/deep/1.jpg")
    fill(root, "._1.jpg", "train/.1.png", ".DS_Store", "train/a/.DS_Store")


@folder(r"1 class without images \(b\).*found 1 hidden \*\.jpg; add images")
def a_class_of_hidden_images(root):
    fill(root, "a/1.jpg", "b/._1.jpg")
