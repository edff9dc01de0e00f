"""Images for a rank: which, in what order, and what the record says."""

import hashlib
import os
import random
import shutil
import threading

import pytest
import torch

from nbkit.errors import ConfigError
from nbkit.worker.data.files import ImageFolder
from tests.worker.images import (
    CLASSES,
    images_by_label,
    labels_of,
    picture,
    same,
    write_classes,
)

# torch warns of more loading processes than CPUs; some tests want several anyway.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


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


def test_an_epoch_may_be_left_early_and_the_next_is_whole(flat, opened):
    one = opened(flat, num_workers=2)
    expected = labels_of(opened(flat).train_batches(1))

    next(iter(one.train_batches(0)))

    assert labels_of(one.train_batches(1)) == expected


def test_loading_takes_no_random_numbers_from_the_training(flat, opened):
    state, python_state = torch.get_rng_state(), random.getstate()

    list(opened(flat).train_batches(0))
    list(opened(flat, num_workers=1).train_batches(0))

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


def test_a_class_called_train_is_a_class(tmp_path, opened):
    write_classes(tmp_path, classes=2)
    (tmp_path / "class 00").rename(tmp_path / "train")

    one = opened(tmp_path, 1)

    assert (one.num_classes, one.evaluation_images) == (2, 0)


def test_hidden_files_and_folders_are_passed_over(flat, opened):
    (flat / ".ipynb_checkpoints").mkdir()
    (flat / "class 00" / "._0.JPEG").write_bytes(b"not an image")
    (flat / "class 00" / "notes.txt").write_text("not an image")

    assert opened(flat, 1).train_images == CLASSES


def test_images_in_folders_further_down_belong_to_the_class(flat, opened):
    (flat / "class 03" / "more").mkdir()
    picture(1).save(flat / "class 03" / "more" / "1.png")

    labels = torch.cat([labels for _, labels in opened(flat, 1).train_batches(0)])

    assert sorted(labels.tolist()) == sorted([*range(CLASSES), 3])


def test_the_fingerprint_tells_data_sets_apart_and_copies_not(split, tmp_path, opened):
    original = opened(split).fingerprint
    shutil.copytree(split, tmp_path / "copy")
    files = [path for path in split.rglob("*") if path.is_file()]

    copy = opened(tmp_path / "copy").fingerprint

    assert original["source"] == str(split)
    assert original["files"] == len(files) == 2 * CLASSES
    assert original["bytes"] == sum(path.stat().st_size for path in files)
    assert copy["sha256"] == original["sha256"]
    (tmp_path / "copy" / "val" / "class 00" / "0.JPEG").write_bytes(b"another size")
    assert opened(tmp_path / "copy").fingerprint["sha256"] != original["sha256"]


def test_the_fingerprint_asks_for_many_files_at_once_and_keeps_their_order(
    tmp_path, monkeypatch
):
    names = [f"{kind}/{number:03}.png" for kind in "ab" for number in range(400)]
    for number, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * (number % 7))
    folder = ImageFolder.read(tmp_path)
    together = threading.Barrier(2)
    stat = os.stat

    def stat_of_a_slow_disk(path, **options):
        if str(path).endswith((names[0], names[-1])):
            together.wait(30)  # neither is answered before both were asked
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", stat_of_a_slow_disk)
    fingerprint = folder.fingerprint()
    monkeypatch.undo()

    listing = "".join(f"{name}\0{n % 7}\n" for n, name in enumerate(names))
    assert fingerprint["files"] == 800
    assert fingerprint["bytes"] == sum(n % 7 for n in range(800))
    assert fingerprint["sha256"] == hashlib.sha256(listing.encode()).hexdigest()


def test_a_file_that_has_gone_since_the_listing_is_named(flat):
    folder = ImageFolder.read(flat)
    gone = next(flat.rglob("*.*"))
    gone.unlink()

    with pytest.raises(ConfigError, match=f"{gone} is gone"):
        folder.fingerprint()


def test_the_record_says_what_is_left_out_and_who_loads(flat, opened):
    described = opened(flat, 4, num_workers=2).describe()

    assert described["train_images"] == 8
    assert described["dropped_images"] == 2
    assert described["num_workers"] == 2
