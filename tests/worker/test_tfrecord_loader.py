"""Pipelines of TFRecord files: every image once, whatever the steps and the ranks."""

import itertools
import shutil
import threading

import pytest

from nbkit.config import pipeline as config_pipeline
from nbkit.config.pipeline import PIPELINES
from nbkit.datasets import pack
from nbkit.errors import ConfigError
from nbkit.questions.input_pipeline.planning import LADDER
from nbkit.worker.data import tfrecord
from tests.worker.images import (
    CLASSES,
    images_by_label,
    labels_of,
    same,
    write_classes,
)

EVERY = {**PIPELINES, **LADDER}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Four files for training and one for evaluation; a label tells its image."""
    root = tmp_path_factory.mktemp("shards")
    write_classes(root / "flat" / "train", classes=24)
    write_classes(root / "flat" / "val")
    # Sizes count in millions of bytes, far above these: one file each is written.
    pack(root / "flat", root / "one", "tfrecord", on_progress=lambda *_: None)
    return root


@pytest.fixture(scope="module")
def many(shards):
    """The same in files of six images."""
    from nbkit.datasets import packing

    bound = 6 * max(p.stat().st_size for p in (shards / "flat").rglob("*.JPEG"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "SHARD_MEGABYTES", bound / 1e6)
        pack(shards / "flat", shards / "many", "tfrecord", on_progress=lambda *_: None)
    files = list((shards / "many").glob("train-*.tfrecord"))
    assert len(files) >= 4
    return shards / "many"


@pytest.fixture
def piped(opened):
    """Open a rank's part of files through a pipeline."""

    def load(root, pipeline, *placed, num_workers=2, **fields):
        settings = {"pipeline": pipeline, "num_workers": num_workers}
        return opened(
            root, *placed, loader="tfrecord", loader_config=settings, **fields
        )

    return load


@pytest.mark.parametrize(
    ("pipeline", "world_size"),
    [*itertools.product(PIPELINES, (1, 2)), *((one, 3) for one in EVERY)],
)
def test_no_image_is_shown_twice_and_ranks_have_as_many_batches(
    many, piped, monkeypatch, pipeline, world_size
):
    # Four files are six images for two of three ranks, and twelve for the other.
    monkeypatch.setattr(config_pipeline, "MOST_LEFT_OUT", 0.5)
    steps = EVERY[pipeline]
    ranks = [piped(many, steps, 2, rank, world_size) for rank in range(world_size)]

    seen = [labels_of(one.train_batches(0)) for one in ranks]

    everything = [label for batches in seen for batch in batches for label in batch]
    assert len(set(everything)) == len(everything) == ranks[0].train_images
    assert {len(batches) for batches in seen} == {ranks[0].steps_per_epoch}
    assert all(one.train_images + one.dropped_images == 24 for one in ranks)


@pytest.mark.parametrize("pipeline", EVERY.values(), ids=EVERY)
def test_every_image_of_every_file_goes_through_the_steps_once(many, piped, pipeline):
    shown = []
    for rank in range(2):
        one = piped(many, pipeline, 1, rank, 2)
        shown += [index for batch in one.train_requests(5) for index in batch.indices]

    assert sorted(shown) == list(range(24))


@pytest.mark.parametrize(
    ("pipeline", "decoded"), [("chexnet_old", 48), ("chexnet_new", 24)]
)
def test_the_old_pipeline_decodes_on_every_rank_what_one_of_them_shows(
    many, piped, monkeypatch, pipeline, decoded
):
    calls = []
    original = tfrecord.decode_crop
    monkeypatch.setattr(
        tfrecord, "decode_crop", lambda *image: calls.append(1) or original(*image)
    )

    for rank in range(2):
        list(piped(many, pipeline, 1, rank, 2, num_workers=0).train_batches(0))

    # The last image of a rank need not be the last that goes through.
    assert len(calls) == pytest.approx(decoded, abs=4)


@pytest.mark.parametrize("num_workers", [0, 4])
@pytest.mark.parametrize("pipeline", ["chexnet_new", "parallel interleave"])
def test_what_no_batch_of_a_rank_will_hold_is_not_decoded(
    many, piped, monkeypatch, pipeline, num_workers
):
    calls = []
    original = tfrecord.decode_crop
    monkeypatch.setattr(
        tfrecord, "decode_crop", lambda *image: calls.append(1) or original(*image)
    )
    # 24 images in batches of 7 are three and the beginning of another one.
    one = piped(many, EVERY[pipeline], 7, num_workers=num_workers)

    list(one.train_batches(0))

    assert len(calls) == one.train_images == 21


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_tfrecord_epoch_begins_with_its_first_batch(many, piped, monkeypatch, pipeline):
    expected = labels_of(piped(many, pipeline).train_batches(1))
    one = piped(many, pipeline)
    earlier = one.train_batches(0)
    next(earlier)
    before, begun = set(threading.enumerate()), []
    original = tfrecord.TFRecordData.train_requests
    monkeypatch.setattr(
        tfrecord.TFRecordData,
        "train_requests",
        lambda *of: begun.append(1) or original(*of),
    )

    stream = one.train_batches(1)

    # Neither is an order worked out, nor do the threads of the last epoch end.
    assert begun == []
    assert set(threading.enumerate()) == before
    assert labels_of(stream) == expected
    assert begun
    assert next(earlier, None) is None


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_an_image_looks_as_with_every_other_loader(many, opened, piped, pipeline):
    one = piped(many, pipeline)
    expected = images_by_label(opened(many, loader="naive").train_batches(1))

    found = images_by_label(one.train_batches(1))

    assert found.keys() == expected.keys()
    assert all((found[label] == expected[label]).all() for label in found)
    assert [labels.tolist() for _, labels, _ in one.evaluation_batches()] == [
        [label, label + 1] for label in range(0, CLASSES, 2)
    ]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_the_order_follows_seed_epoch_and_files_and_not_the_threads(
    many, piped, pipeline
):
    def order(epoch=0, **fields):
        one = piped(many, pipeline, 2, **fields)
        return labels_of(one.train_batches(epoch))

    assert order(num_workers=0) == order(num_workers=1) == order(num_workers=4)
    assert order(epoch=1) != order()
    assert order(seed=1) != order()


@pytest.mark.parametrize("pipeline", EVERY.values(), ids=EVERY)
def test_an_epoch_goes_on_in_the_middle_without_reading_what_was_shown(
    many, piped, monkeypatch, pipeline
):
    first = piped(many, pipeline, 3)
    whole = list(first.train_batches(2))
    read = []
    original = tfrecord.read_image
    monkeypatch.setattr(
        tfrecord,
        "read_image",
        lambda s, index: read.append(index) or original(s, index),
    )
    second = piped(many, pipeline, 3)

    assert same(second.train_batches(2, 5), whole[5:])

    assert len(set(read)) == len(read) == 24 - 15


def test_ranks_that_share_files_need_one_each(shards, piped):
    with pytest.raises(ConfigError, match=r"1 TFRecord file .* 2 ranks.*pack smaller"):
        piped(shards / "one", "chexnet_new", 2, 0, 2)

    late = piped(shards / "one", "chexnet_old", 2, 0, 2)
    assert late.steps_per_epoch == 6


def test_files_that_would_leave_out_much_of_the_data_are_refused(many, piped):
    said = r"24 training images in 4 files. .* 3 ranks .* 6 images.*25.0% .*limit 5%"
    with pytest.raises(ConfigError, match=said) as refused:
        piped(many, "chexnet_new", 2, 0, 3)

    assert "put 'shard' after 'read'" in str(refused.value)
    assert piped(many, "chexnet_old", 2, 0, 3).train_images == 24
    assert piped(many, "chexnet_new", 2, 0, 2).train_images == 24


def test_too_large_a_batch_is_refused_with_how_many_images_there_really_are(
    many, piped, monkeypatch
):
    monkeypatch.setattr(config_pipeline, "MOST_LEFT_OUT", 0.5)

    with pytest.raises(ConfigError, match=r"24 training images, 6 per rank.*gpu=6 or"):
        piped(many, "chexnet_new", 8, 0, 3)


def test_other_files_are_refused_with_what_packs_them(shards, opened):
    with pytest.raises(ConfigError, match=r"reads TFRecord files.*Pack the data"):
        opened(shards / "flat", loader="tfrecord")


def test_an_image_that_fails_after_it_was_looked_at_is_named(many, piped, tmp_path):
    copy = shutil.copytree(many, tmp_path / "copy")
    one = piped(copy, "chexnet_new")
    file = sorted(copy.glob("train-*.tfrecord"))[0]
    file.write_bytes(b"\0" * file.stat().st_size)

    with pytest.raises(ConfigError, match=r"0.JPEG in .*is no longer a readable image"):
        list(one.train_batches(0))


def test_the_record_says_what_the_steps_were(many, piped):
    one = piped(many, "chexnet_old", num_workers=3)

    said = one.describe()

    assert said["loader"] == "tfrecord"
    assert said["pipeline"] == PIPELINES["chexnet_old"]
    assert (said["threads"], said["files"]) == (3, len(one.files))
