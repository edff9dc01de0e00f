"""Images in class folders: which are found, and what is refused."""

import pytest

from nbkit.datasets.image_folder import list_image_folder
from tests.datasets.images import CLASSES, names_of, picture


def test_train_and_val_folders_are_the_two_splits(folder):
    contents = list_image_folder(folder).contents

    assert list(contents.classes) == list(CLASSES)
    assert len(contents.train) == 12
    assert len(contents.evaluation) == 6
    for samples, split in ((contents.train, "train"), (contents.evaluation, "val")):
        for sample in samples:
            folder_name, class_name, _ = sample.name.split("/")
            assert folder_name == split
            assert CLASSES.index(class_name) == sample.label


def test_folders_of_classes_alone_have_no_evaluation_images(folder):
    contents = list_image_folder(folder / "train").contents

    assert list(contents.classes) == list(CLASSES)
    assert len(contents.train) == 12
    assert contents.evaluation == []


def test_images_are_in_the_order_of_their_names_also_across_folders(tmp_path):
    for name in ("b/1.png", "a/2.png", "a/1/9.png", "a b/1.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        picture(1).save(tmp_path / name)

    contents = list_image_folder(tmp_path).contents

    assert names_of(contents.train) == ["a b/1.png", "a/1/9.png", "a/2.png", "b/1.png"]
    assert [sample.label for sample in contents.train] == [1, 0, 0, 2]


@pytest.mark.parametrize("has_folder", [True, False])
def test_a_class_without_evaluation_images_is_none_of_them(folder, has_folder):
    for path in (folder / "val" / "apple").iterdir():
        path.unlink()
    if not has_folder:
        (folder / "val" / "apple").rmdir()

    evaluation = list_image_folder(folder).contents.evaluation
    assert {sample.label for sample in evaluation} == {1, 2}
