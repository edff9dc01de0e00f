"""From the word that an experiment has for its data to the images."""

import pytest

from nbkit.datasets.cache import NAMED
from nbkit.datasets.find import find
from nbkit.errors import ConfigError


@pytest.mark.parametrize("format", ["webdataset", "recordio", "tfrecord"])
def test_a_pack_is_known_by_its_files(folder, packed, format):
    assert find(str(packed(folder, format))).kind == format


def test_a_folder_and_a_table_are_known(folder, table):
    assert find(str(folder)).kind == "image folder"
    assert find(str(table)).kind == "multi-label"


def test_a_folder_beside_its_table_is_an_image_folder(folder):
    (folder / "labels.csv").write_text("file,sick\n")

    assert find(str(folder)).kind == "image folder"


def test_the_home_folder_may_be_a_tilde(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))

    assert len(find("~/folder").contents.train) == 12


def test_packs_of_two_formats_in_one_folder_are_refused(folder, packed):
    pack = packed(folder, "webdataset")
    (packed(folder, "recordio") / "train.rec").rename(pack / "train.rec")

    with pytest.raises(
        ConfigError, match=r"contains WebDataset .* and RecordIO .* Keep"
    ):
        find(str(pack))


def test_a_pack_among_images_is_refused(folder, packed):
    (packed(folder, "webdataset") / "train-00000.tar").rename(folder / "train.tar")

    with pytest.raises(ConfigError, match=r"WebDataset .* and images in folders"):
        find(str(folder))


@pytest.mark.parametrize(
    ("name", "said"), [("nowhere", "does not exist"), ("file.zip", "is a file")]
)
def test_what_cannot_be_used_gets_a_list_of_what_can(tmp_path, name, said):
    (tmp_path / "file.zip").write_bytes(b"")

    with pytest.raises(ConfigError, match=f"{name}' {said}. Pass the path") as caught:
        find(str(tmp_path / name))

    for possible in (*NAMED, "synthetic", "<class>/", "*.tar", "*.rec", "CSV"):
        assert possible in str(caught.value)
