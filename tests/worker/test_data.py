"""Images for a rank: which, in what order, and what the record says."""

import random

import pytest
import torch
from PIL import Image

from nbkit.config import ExperimentConfig
from nbkit.datasets import pack
from nbkit.errors import ConfigError, RunError
from nbkit.worker import data
from nbkit.worker.data.naive import NaiveData
from tests.worker.images import (
    CLASSES,
    DEVIATION,
    MEAN,
    images_by_label,
    labels_of,
    same,
)

# torch warns of more loading processes than CPUs; some tests want several anyway.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


LOADERS = ["naive", "torch", "dali"]


@pytest.fixture
def coloured(tmp_path):
    """Images of one colour each, which tells their path; three classes."""
    paths = {}
    for split, count in (("train", 9), ("val", 5)):
        for label in range(3):
            folder = tmp_path / "coloured" / split / f"class {label}"
            folder.mkdir(parents=True)
            for number in range(count):
                colour = (5 * len(paths), 255 - 5 * len(paths), 40)
                Image.new("RGB", (40, 30), colour).save(folder / f"{number}.png")
                paths[colour] = f"{split}/class {label}/{number}.png", label
    return tmp_path / "coloured", paths


def seen_in(batches, paths):
    """Return path and label of every image in some batches, by its colour."""
    seen = []
    for images, labels, *masks in batches:
        pixels = ((images * DEVIATION + MEAN) * 255).round().int()
        mask = masks[0] if masks else torch.ones(len(labels), dtype=torch.bool)
        for image, label in zip(pixels[mask], labels[mask], strict=True):
            assert image.flatten(1).unique(dim=1).shape == (3, 1)
            path, expected = paths[tuple(image[:, 0, 0].tolist())]
            assert label == expected
            seen.append((path, int(label)))
    return seen


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_every_loader_shows_the_same_images_with_the_same_labels(
    coloured, opened, world_size
):
    root, paths = coloured
    trained, evaluated = {}, {}
    for loader in LOADERS:
        ranks = [
            opened(root, 4, rank, world_size, loader=loader, num_workers=rank % 2)
            for rank in range(world_size)
        ]
        trained[loader] = [
            one for data in ranks for one in seen_in(data.train_batches(3), paths)
        ]
        evaluated[loader] = [
            one for data in ranks for one in seen_in(data.evaluation_batches(), paths)
        ]
        assert len(trained[loader]) == ranks[0].train_images
        assert ranks[0].train_images + ranks[0].dropped_images == 27

    assert len(set(trained["torch"])) == len(trained["torch"])
    assert sorted(trained["naive"]) == sorted(trained["torch"])
    whole = sorted(one for one in paths.values() if one[0].startswith("val"))
    assert sorted(evaluated["naive"]) == sorted(evaluated["torch"]) == whole


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("packed", ["webdataset", "recordio", "tfrecord"])
def test_packed_images_are_those_of_the_folder_in_the_same_order(
    coloured, tmp_path, opened, loader, packed
):
    root, paths = coloured
    pack(root, tmp_path / "packed", packed, on_progress=lambda done, total: None)
    folder = opened(root, 4, loader=loader, num_workers=2)
    shards = opened(tmp_path / "packed", 4, loader=loader, num_workers=2)

    for epoch in (0, 1):
        expected = seen_in(folder.train_batches(epoch), paths)
        assert seen_in(shards.train_batches(epoch), paths) == expected
    expected = seen_in(folder.evaluation_batches(), paths)
    assert seen_in(shards.evaluation_batches(), paths) == expected
    assert len(expected) == 15


def test_the_torch_loader_shows_nearly_what_pillow_shows(split, opened):
    naive, other = (opened(split, loader=loader) for loader in ("naive", "torch"))

    for one, two in (
        (naive.train_batches(1, 2), other.train_batches(1, 2)),
        (naive.evaluation_batches(), other.evaluation_batches()),
    ):
        for (images, *rest), (others, *others_rest) in zip(one, two, strict=True):
            assert same([rest], [others_rest])
            levels = ((images - others) * DEVIATION * 255).abs()
            assert levels.max() < 2.5
            assert levels.mean() < 0.3


@pytest.mark.parametrize("loader", LOADERS)
def test_several_labels_come_as_numbers_of_their_own(tmp_path, opened, loader):
    rows = {"a.png": (1, 0, 1), "b.png": (0, 0, 0), "c.png": (0, 1, 1)}
    lines = ["file,split,red,green,blue"]
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        for name, labels in rows.items():
            colour = tuple(200 * label for label in labels)
            Image.new("RGB", (32, 32), colour).save(tmp_path / split / name)
            lines.append(f"{split}/{name},{split},{','.join(map(str, labels))}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))

    one = opened(tmp_path / "labels.csv", 2, loader=loader)
    batches = [*one.evaluation_batches()]

    assert one.num_classes == 3
    for images, labels, mask in [*batches, (*next(one.train_batches(0)), None)]:
        assert labels.dtype == torch.float32
        assert labels.shape == (2, 3)
        bright = ((images * DEVIATION + MEAN) * 255).mean((2, 3)) > 100
        shown = slice(None) if mask is None else mask
        assert torch.equal(bright[shown].float(), labels[shown])
    assert [mask.tolist() for *_, mask in batches] == [[True, True], [True, False]]
    with pytest.raises(ConfigError, match=r"num_classes=4, but .* labels"):
        opened(tmp_path / "labels.csv", 2, num_classes=4)


def test_ranks_share_an_epoch_and_drop_what_is_left_over(flat, opened):
    ranks = [opened(flat, 2, rank, 2, gradient_accumulation_steps=2) for rank in (0, 1)]

    seen = [labels_of(one.train_batches(0)) for one in ranks]

    everything = [label for batches in seen for batch in batches for label in batch]
    assert len(set(everything)) == len(everything) == 8
    assert [len(batches) for batches in seen] == [2, 2]
    for one in ranks:
        assert (one.steps_per_epoch, one.train_images, one.dropped_images) == (1, 8, 2)


def test_the_order_follows_seed_and_epoch(flat, opened):
    first = labels_of(opened(flat, seed=1).train_batches(0))

    assert labels_of(opened(flat, seed=1).train_batches(0)) == first
    assert labels_of(opened(flat, seed=1).train_batches(1)) != first
    assert labels_of(opened(flat, seed=2).train_batches(0)) != first


@pytest.mark.parametrize("workers", [1, 3])
def test_loading_processes_change_nothing(flat, opened, workers):
    alone, helped = opened(flat), opened(flat, num_workers=workers)

    for epoch in (0, 1):
        assert same(alone.train_batches(epoch), helped.train_batches(epoch))


def test_an_image_looks_the_same_to_any_number_of_ranks(flat, opened):
    alone = images_by_label(opened(flat).train_batches(3))

    shared = images_by_label(
        *(opened(flat, 1, rank, 2).train_batches(3) for rank in (0, 1))
    )

    assert alone.keys() == shared.keys()
    assert all(torch.equal(alone[label], shared[label]) for label in alone)


def test_an_image_looks_different_in_every_epoch(flat, opened):
    one = opened(flat)

    first, second = (images_by_label(one.train_batches(epoch)) for epoch in (0, 1))

    assert not any(torch.equal(first[label], second[label]) for label in first)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_goes_on_in_the_middle_as_if_never_interrupted(flat, opened, workers):
    whole = list(opened(flat, num_workers=workers).train_batches(2))

    assert same(opened(flat, num_workers=workers).train_batches(2, 3), whole[3:])


@pytest.mark.parametrize(
    ("loader", "workers"), [("torch", 0), ("torch", 2), ("dali", 2)]
)
def test_loader_keeps_random_numbers_and_the_epoch_after_one_left_early(
    flat, opened, loader, workers
):
    state, python_state = torch.get_rng_state(), random.getstate()
    expected = labels_of(opened(flat, loader=loader).train_batches(1))
    one = opened(flat, loader=loader, num_workers=workers)

    next(iter(one.train_batches(0)))

    assert labels_of(one.train_batches(1)) == expected
    assert torch.equal(torch.get_rng_state(), state)
    assert random.getstate() == python_state


@pytest.mark.parametrize(("batch_size", "world_size"), [(3, 1), (4, 2), (2, 3), (3, 3)])
def test_every_evaluation_image_counts_once(split, opened, batch_size, world_size):
    counted, lengths = [], set()
    for rank in range(world_size):
        one = opened(split, batch_size, rank, world_size, evaluation_period_epochs=1)
        assert one.evaluation_images == CLASSES
        batches = list(one.evaluation_batches())
        lengths.add(len(batches))
        for images, labels, mask in batches:
            assert images.shape[0] == labels.shape[0] == mask.shape[0]
            assert ((labels >= 0) & (labels < CLASSES)).all()
            counted += labels[mask].tolist()

    assert sorted(counted) == list(range(CLASSES))
    assert len(lengths) == 1


def test_evaluation_between_two_epochs_disturbs_neither(split, opened):
    expected = labels_of(opened(split).train_batches(1))
    one = opened(split, num_workers=1)

    list(one.train_batches(0))
    evaluated = [labels for _, labels, _ in one.evaluation_batches()]

    assert torch.cat(evaluated).tolist() == list(range(CLASSES))
    assert labels_of(one.train_batches(1)) == expected


def test_a_loader_that_gives_too_few_batches_does_not_shorten_an_epoch(flat, opened):
    class Short(NaiveData):
        def _pixels(self, samples, requests):
            yield next(super()._pixels(samples, requests))

    whole = opened(flat)
    short = Short(whole.config, whole.manifest, whole.placement, whole.batch_size)

    with pytest.raises(ValueError, match="shorter"):
        list(short.train_batches(0))


def test_the_record_says_what_is_left_out_and_who_loads(flat, opened):
    described = opened(flat, 4, num_workers=2).describe()

    assert described["train_images"] == 8
    assert described["dropped_images"] == 2
    assert described["evaluation_images"] == 0
    assert (described["loader"], described["num_workers"]) == ("torch", 2)


def test_a_loader_that_ends_early_is_named():
    config = ExperimentConfig(loader="naive", gradient_accumulation_steps=2)
    stream = iter([(torch.zeros(1), torch.zeros(1))])
    data.next_batch(stream, config, 1)

    with pytest.raises(RunError, match=r"'naive' ran out of batches at step 1.*=2\)"):
        data.next_batch(stream, config, 1)
