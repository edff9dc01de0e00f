"""The default set: like ImageNet in size, the same wherever it is made."""

import importlib.util
import statistics
import threading

import pytest
from PIL import Image

from nbkit.datasets import photos
from nbkit.datasets.cache import NAMED_IMAGES, cached_folder
from nbkit.datasets.find import find
from nbkit.errors import ConfigError, StoreError

FEW = {"train": 10, "val": 3}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A fifth of the set: the first images of each class."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(photos, "IMAGES", FEW)
        return photos.photos_folder()


def test_the_set_has_classes_to_train_on_and_to_evaluate_with(made, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(made.parents[1]))

    listing = find("photos")

    assert listing.root == made
    assert len(listing.contents.classes) == 8
    counts = [len(listing.contents.train), len(listing.contents.evaluation)]
    assert counts == [8 * count for count in FEW.values()]
    whole = [8 * count for count in photos.IMAGES.values()]
    assert (*whole, 0) == NAMED_IMAGES["photos"] == (400, 96, 0)
    contents = {path.read_bytes() for path in made.rglob("*.jpg")}
    assert len(contents) == sum(counts)


def test_the_images_are_as_large_and_as_finely_compressed_as_imagenet(made):
    paths = sorted(made.rglob("*.jpg"))
    sizes = []
    for path in paths:
        with Image.open(path) as image:
            sizes.append(image.size)
            assert image.mode == "RGB"
            # One sample of colour for every pixel.
            assert {layer[1:3] for layer in image.layer} == {(1, 1)}

    assert statistics.mean(path.stat().st_size for path in paths) == pytest.approx(
        110_000, rel=0.1
    )
    assert statistics.median(max(size) for size in sizes) == 500
    assert any(width < height for width, height in sizes)


def test_making_it_again_gives_the_same_bytes(made, cache, monkeypatch):
    monkeypatch.setattr(photos, "IMAGES", {"train": 3, "val": 2})

    again = photos.photos_folder()

    paths = [path.relative_to(again) for path in again.rglob("*.jpg")]
    assert len(paths) == 8 * 5
    for path in paths:
        assert (again / path).read_bytes() == (made / path).read_bytes()


def test_what_waits_is_called_and_may_end_it(cache, monkeypatch):
    monkeypatch.setattr(photos, "IMAGES", {"train": 1})

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        photos.photos_folder(on_wait=stop)

    assert list(cache.iterdir()) == []


def test_without_scikit_image_it_says_what_to_install(cache, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(ConfigError, match="requires scikit-image, which is not"):
        find("photos")


def test_photographs_that_a_version_has_not_are_named(cache, monkeypatch):
    monkeypatch.setitem(photos.PHOTOS, "dodo", "dodo.png")

    words = r"requires .*/data/dodo\.png, but .* Install another version"
    with pytest.raises(ConfigError, match=words):
        find("photos")


def test_of_two_that_make_a_folder_at_once_both_get_all_of_it(cache):
    together = threading.Barrier(2)
    found = []

    def make(folder):
        together.wait(30)
        (folder / "a").write_text("a")
        together.wait(30)
        (folder / "b").write_text("b")

    def ask():
        folder = cached_folder("photos", make)
        found.append((folder, sorted(path.name for path in folder.iterdir())))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [(cache / "photos-1", ["a", "b"])] * 2
    assert list(cache.iterdir()) == [cache / "photos-1"]


def test_a_folder_is_made_once(cache):
    made = []

    for _ in range(2):
        cached_folder("photos", made.append)

    assert len(made) == 1


def test_a_cache_that_cannot_be_written_is_named(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc")

    with pytest.raises(StoreError, match=r"/proc/nbkit/photos-1 cannot be created \("):
        cached_folder("photos", lambda folder: None)
