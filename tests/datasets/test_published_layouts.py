"""Image sets as their authors, or Kaggle, hand them out: read as a person would."""

import pytest

from nbkit.datasets.find import find
from nbkit.errors import ConfigError
from tests.datasets.odd_layouts import fill


def class_folders(*classes, under="", files=("1.jpg", "2.jpg")):
    return [f"{under}{name}/{file}" for name in classes for file in files]


def several(*folders, classes=("cat", "dog")):
    return [
        path for one in folders for path in class_folders(*classes, under=f"{one}/")
    ]


READ = {
    "ImageNet's synsets": (
        several("train", "val", classes=("n01440764", "n01443537")),
        ["n01440764", "n01443537"],
    ),
    "ImageNet by name": (
        class_folders("bullet_train", "great white shark", "test_tube", "tench"),
        ["bullet_train", "great white shark", "tench", "test_tube"],
    ),
    "Tiny-ImageNet's train": (
        class_folders(
            "n1", "n2", files=("images/1.JPEG", "images/2.JPEG", "n_boxes.txt")
        ),
        ["n1", "n2"],
    ),
    "Caltech-101": (
        class_folders("BACKGROUND_Google", "Faces", "Faces_easy", "accordion"),
        ["BACKGROUND_Google", "Faces", "Faces_easy", "accordion"],
    ),
    "MNIST": (several("training", "testing", classes="0123"), [*"0123"]),
    "Fruits-360": (
        [
            *several("Training", "Test", classes=("Apple 5", "Pear 1")),
            "test-multiple_fruits/a.jpg",
            "papers/p.pdf",
        ],
        ["Apple 5", "Pear 1"],
    ),
    "GTSRB on Kaggle": (
        [
            *class_folders("0", "1", "10", under="Train/"),
            "Test/1.png",
            "Meta/0.png",
            "Train.csv",
        ],
        ["0", "1", "10"],
    ),
    "Places365": (
        class_folders(
            "train_railway", "train_interior", "train_station-platform", "bar"
        ),
        ["bar", "train_interior", "train_railway", "train_station-platform"],
    ),
    "SUN397": (
        ["a/abbey/1.jpg", "a/alley/1.jpg", "t/train_railway/1.jpg", "t/tower/1.jpg"],
        [*"at"],
    ),
    "BreakHis": (
        [
            "benign/SOB/adenosis/1.png",
            "benign/SOB/fibroadenoma/1.png",
            "malignant/SOB/lobular/1.png",
            "malignant/SOB/ductal/1.png",
        ],
        ["benign", "malignant"],
    ),
    "trains": (class_folders("steam_train", "train"), ["steam_train", "train"]),
    "chess": (class_folders("set", "board", "image"), ["board", "image", "set"]),
    "subjects of actions in train": (
        several("train/walk", "train/run", classes=("s01", "s02")),
        ["run", "walk"],
    ),
}

INTEL = [
    *class_folders("forest", "sea", under="seg_train/seg_train/"),
    *class_folders("forest", "sea", under="seg_test/seg_test/"),
]
OMNIGLOT = [
    *class_folders(
        "Balinese/c01", "Balinese/c02", "Greek/c01", under="images_background/"
    ),
    *class_folders("Avesta/c01", "Avesta/c02", "Ge_ez/c01", under="images_evaluation/"),
]
REFUSED = {
    "Intel": ([*INTEL, "seg_pred/seg_pred/1.jpg"], "/seg_train/seg_train'"),
    "Intel, flat": (
        [*several("seg_train", "seg_test"), "seg_pred/1.jpg"],
        "/seg_train'",
    ),
    "Omniglot": (OMNIGLOT, "/images_background'|/images_evaluation'"),
    "an alphabet each": (
        class_folders("Balinese/c01", "Balinese/c02", "Greek/c01", "Greek/c02"),
        "only subfolders with the same names .*Use data=.*/Balinese'",
    ),
    "PlantVillage": (several("color", "grayscale", "segmented"), "/color'"),
    "folds": (several("fold_0", "fold_1", "fold_2"), "/fold_0'"),
    "folds of images": (["fold_0/1.jpg", "fold_1/1.jpg"], "fold_0, fold_1"),
    "sites": (several("site1", "site2"), "the same names .*Use data=.*/site1'"),
    "domains": (
        several("amazon/images", "dslr/images", "webcam/images"),
        "the same names .*/amazon/images'",
    ),
    "holdout": (several("train_data", "holdout"), "/train_data'"),
    "labeled": ([*several("labeled"), "unlabeled/1.jpg"], "/labeled'"),
    "STL-10": (
        [*several("train_images", "test_images"), "unlabeled_images/1.jpg"],
        "/train_images'",
    ),
    "Oxford pets": (["images/1.jpg", "annotations/trimaps/1.png"], "annotations, im"),
    "Oxford flowers": (["jpg/image_00001.jpg", "setid.mat"], "1 class folder"),
    "dogs against cats": (["train/cat.0.jpg", "test1/1.jpg"], "look like splits"),
    "NIH without its table": (
        ["images_001/images/1.png", "images_002/images/2.png"],
        "look like splits",
    ),
    "Market-1501": (
        ["bounding_box_train/1.jpg", "bounding_box_test/1.jpg", "query/1.jpg"],
        r"look like splits \(bounding_box_test, bounding_box_train\)",
    ),
    "COVID radiographs": (
        class_folders("COVID", "Normal", files=("images/1.png", "masks/1.png")),
        r"the same names \(images, masks\), so .* unclear\. Put the images",
    ),
    "UC Merced as unpacked": (
        class_folders("agricultural", "airplane", under="Images/"),
        "1 class folder .*Use data=.*/Images'",
    ),
    "DTD as unpacked": (
        [*class_folders("banded", under="images/"), "imdb/i.mat", "labels/l.txt"],
        "imdb, labels",
    ),
    "splits in classes": (
        class_folders("cat", "dog", files=("train_images/1.jpg", "test_images/1.jpg")),
        "contains splits",
    ),
}


@pytest.mark.parametrize("name", READ)
def test_layout_gives_its_classes(tmp_path, name):
    files, classes = READ[name]
    fill(tmp_path, *files)

    assert list(find(str(tmp_path)).contents.classes) == classes


@pytest.mark.parametrize("name", REFUSED)
def test_layout_is_refused_with_what_to_pass(tmp_path, name):
    files, said = REFUSED[name]
    fill(tmp_path, *files)

    with pytest.raises(ConfigError, match=said):
        find(str(tmp_path)).read()
