"""The dali loader on the CPU: the images that other loaders show, or an error."""

import importlib
import os
import re
import signal
import sys

import psutil
import pytest
import torch
from PIL import Image, ImageDraw

from nbkit.config import ExperimentConfig
from nbkit.datasets.check import ORIENTATION_TAG, inspect_image
from nbkit.errors import ConfigError
from nbkit.worker import data
from nbkit.worker.data import Placement
from nbkit.worker.data import dali as dali_loader
from nbkit.worker.data.dali import DaliData
from tests.datasets.odd_files import SIZE, stream
from tests.waiting import wait_until
from tests.worker.images import (
    CLASSES,
    CPU,
    DEVIATION,
    labels_of,
    manifest_of,
    picture,
    same,
)

# Against Pillow, of 255 levels; on 500 photographs it is 9, and 0.16 on average.
LARGEST_ERROR_LEVELS = 12
MEAN_ERROR_LEVELS = 0.3


def errors(batches, expected):
    """Return how far images are from those expected, in levels; the rest is equal."""
    found = []
    for (images, *rest), (others, *others_rest) in zip(batches, expected, strict=True):
        assert same([rest], [others_rest])
        found.append(((images - others) * DEVIATION * 255).abs())
    return torch.cat(found)


def threads():
    return psutil.Process().num_threads()


@pytest.fixture
def dali(tmp_path_factory):
    """Load data through DALI, closed when the test ends."""
    folder = tmp_path_factory.mktemp("manifests")
    all_data = []

    def load(root, batch_size=2, rank=0, world_size=1, settings=None, **fields):
        config = ExperimentConfig(
            data=str(root),
            loader="dali",
            loader_config={"num_workers": 2, "dali": settings or {}},
            **{"image_size": 32, **fields},
        )
        placement = Placement(CPU, rank, world_size)
        manifest = manifest_of(root, folder)
        all_data.append(data.load(config, manifest, placement, batch_size))
        return all_data[-1]

    yield load
    for one in all_data:
        one.close()


@pytest.fixture
def photographs(tmp_path):
    """Images of several sizes, one a class, for training and evaluation."""
    for split in ("train", "val"):
        for number in range(CLASSES):
            folder = tmp_path / "photographs" / split / f"{number:02d}"
            folder.mkdir(parents=True)
            size = (60 + 37 * number, 240 - 17 * number)
            noise = Image.effect_noise(size, 40).convert("RGB")
            Image.blend(picture(number, size), noise, 0.3).save(
                folder / "0.jpg", quality=90, subsampling=number % 3
            )
    return tmp_path / "photographs"


@pytest.mark.parametrize("roi_decode", [True, False])
def test_images_and_labels_are_those_of_the_naive_loader(
    photographs, dali, opened, roi_decode
):
    ours = dali(photographs, 5, settings={"roi_decode": roi_decode})
    theirs = opened(photographs, 5, loader="naive")

    for found in (
        errors(ours.train_batches(0), theirs.train_batches(0)),
        errors(ours.train_batches(1), theirs.train_batches(1)),
        errors(ours.evaluation_batches(), theirs.evaluation_batches()),
    ):
        assert len(found) == CLASSES
        assert found.max() < LARGEST_ERROR_LEVELS
        assert found.mean() < MEAN_ERROR_LEVELS


def test_every_exif_orientation_is_shown_upright_and_cut_alike(
    photographs, dali, opened
):
    for number, path in enumerate(sorted(photographs.rglob("*.jpg"))):
        exif = Image.Exif()
        exif[ORIENTATION_TAG] = number % 9
        with Image.open(path) as image:
            image.save(path, exif=exif, quality=95)

    ours, theirs = dali(photographs, 2), opened(photographs, 2, loader="naive")

    # Turned or cut in another way, an image would be far away on average too.
    found = errors(ours.train_batches(0), theirs.train_batches(0))
    assert found.mean((1, 2, 3)).max() < MEAN_ERROR_LEVELS
    found = errors(ours.evaluation_batches(), theirs.evaluation_batches())
    assert found.mean((1, 2, 3)).max() < MEAN_ERROR_LEVELS


@pytest.mark.parametrize("depth", [1, 3])
def test_what_nvimagecodec_refuses_is_shown_by_pillow_and_counted(
    flat, dali, opened, capsys, depth
):
    for number in (2, 3, 7):
        path = flat / f"class {number:02d}" / "0.JPEG"
        # Pillow does without the sum at the end of the pixels.
        path.write_bytes(stream(picture(number, SIZE), b""))
        assert inspect_image(path.read_bytes()).is_plain
    ours = dali(flat, settings={"prefetch_queue_depth": depth})
    theirs = opened(flat, loader="naive")
    capsys.readouterr()

    for epoch in range(2):
        found = errors(ours.train_batches(epoch), theirs.train_batches(epoch))
        assert len(found) == CLASSES
        assert found.mean((1, 2, 3)).max() < MEAN_ERROR_LEVELS

    said = capsys.readouterr().out
    assert ours.describe()["refused_images"] == 3
    counts = re.findall(r"nvImageCodec cannot decode (\d) images?", said)
    assert sum(map(int, counts)) == 3
    assert all(said.count(f"class {number:02d}/0.JPEG") == 1 for number in (2, 3, 7))


def test_the_border_of_a_smaller_image_counts_more_than_for_pillow(
    tmp_path, dali, opened
):
    framed = Image.new("RGB", (256, 256), "white")
    ImageDraw.Draw(framed).rectangle((0, 0, 255, 255), outline="black", width=2)
    for label in range(2):
        (tmp_path / "data" / str(label)).mkdir(parents=True)
        framed.save(tmp_path / "data" / str(label) / "0.png")
    whole = {"crop_area_min": 1.0, "crop_area_max": 1.0}

    ours = dali(tmp_path / "data", 2, image_size=64, **whole)
    theirs = opened(tmp_path / "data", 2, image_size=64, loader="naive", **whole)
    found = errors(ours.train_batches(0), theirs.train_batches(0))

    # As the loader says of itself.
    assert found.max().round() == 19
    assert found[:, :, 1:-1, 1:-1].max() < 2.5


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_an_epoch_goes_on_in_the_middle_as_if_never_interrupted(
    photographs, dali, depth
):
    settings = {"prefetch_queue_depth": depth}
    whole = list(dali(photographs, 2, settings=settings).train_batches(2))

    resumed = dali(photographs, 2, settings=settings)

    assert len(whole) == 5
    assert same(resumed.train_batches(2, 3), whole[3:])
    assert same(resumed.train_batches(2), whole)


def test_a_training_that_asks_for_no_more_than_there_is_keeps_its_pipeline(
    flat, dali, monkeypatch
):
    expected = [list(dali(flat).train_batches(epoch)) for epoch in range(3)]
    made = []
    new = dali_loader.Pipeline
    monkeypatch.setattr(
        dali_loader, "Pipeline", lambda *of, **by: made.append(by) or new(*of, **by)
    )
    one = dali(flat)

    for epoch in range(3):
        stream = one.train_batches(epoch)
        seen = [next(stream) for _ in range(one.steps_per_epoch)]
        assert same(seen, expected[epoch])

    assert len(made) == 1


def test_evaluation_in_the_middle_of_an_epoch_disturbs_neither(split, dali):
    expected = list(dali(split).train_batches(0))
    one = dali(split)

    training = one.train_batches(0)
    seen = [next(training)]
    evaluated = [labels for _, labels, _ in one.evaluation_batches()]

    assert torch.cat(evaluated).tolist() == list(range(CLASSES))
    assert same([*seen, *training], expected)


def test_closing_in_the_middle_of_an_epoch_leaves_no_thread(split, dali, children):
    one = dali(split)
    list(one.train_batches(0))
    list(one.evaluation_batches())
    one.close()
    before = threads()

    training, evaluating = one.train_batches(1), one.evaluation_batches()
    next(training)
    next(evaluating)
    assert threads() > before
    one.close()
    one.close()

    wait_until(lambda: threads() <= before, "the threads to end")
    assert children() == set()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-50]), "size changed from"),
        (lambda path: path.write_bytes(bytes(path.stat().st_size)), "a format that"),
        (lambda path: picture(1, (30, 20)).save(path), "size changed from"),
    ],
    ids=["gone", "cut off", "overwritten", "another"],
)
def test_an_image_that_fails_after_it_was_looked_at_is_named(flat, dali, damage, said):
    one = dali(flat)
    damage(flat / "class 04" / "0.JPEG")

    with pytest.raises(
        ConfigError, match=f"class 04/0.JPEG is no longer a readable.*{said}"
    ):
        list(one.train_batches(0))


def test_a_request_to_stop_reaches_the_training_and_harms_no_batch(flat, dali):
    expected = labels_of(dali(flat).train_batches(0))
    stream = dali(flat).train_batches(0)
    noted = []
    before = signal.signal(signal.SIGTERM, lambda *_: noted.append(1))

    try:
        seen = [next(stream)[1].tolist()]
        os.kill(os.getpid(), signal.SIGTERM)
        seen += labels_of(stream)
    finally:
        signal.signal(signal.SIGTERM, before)

    assert noted == [1]
    assert seen == expected


def test_it_needs_no_module_of_dali_that_is_not_documented(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvidia.dali.plugin.pytorch.torch_utils", None)
    monkeypatch.delitem(sys.modules, DaliData.__module__)
    monkeypatch.delattr(data, "dali")

    assert importlib.import_module(DaliData.__module__).DaliData is not DaliData


def test_the_record_says_how_it_decodes(flat, dali):
    described = dali(flat, settings={"prefetch_queue_depth": 3}).describe()

    assert described["loader"] == "dali"
    assert described["decodes_on"] == "cpu"
    assert described["num_threads"] == 2
    assert described["prefetch_queue_depth"] == 3
    assert described["roi_decode"] is True
