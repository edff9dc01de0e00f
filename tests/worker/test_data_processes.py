"""Loading processes, and data without any: synthetic images."""

import gc
import os
import signal
import subprocess
import sys

import pytest
import torch

from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.worker.data.image_data import cpus_for_loading
from tests.waiting import patient
from tests.worker.images import labels_of, manifest_of, same

# torch warns of more loading processes than CPUs; some tests want several anyway.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def test_closing_in_the_middle_of_an_epoch_ends_the_loading_processes(
    split, opened, children
):
    one = opened(split, num_workers=2)
    training, evaluating = one.train_batches(0), one.evaluation_batches()
    next(training)
    next(evaluating)
    assert len(children()) == 4

    one.close()
    one.close()

    assert children() == set()


def test_loading_processes_stay_for_the_next_epoch(flat, opened, children):
    one = opened(flat, num_workers=1)

    list(one.train_batches(0))
    before = children()
    list(one.train_batches(1))

    assert len(before) == 1
    assert children() == before


def test_a_request_to_stop_reaches_the_training_process_alone(flat, opened, children):
    expected = labels_of(opened(flat).train_batches(0))
    one = opened(flat, num_workers=2)
    stream = one.train_batches(0)
    seen = [next(stream)[1].tolist()]

    workers = [str(process.pid) for process in children()]
    for name in ("TERM", "INT"):
        subprocess.run(["kill", f"-{name}", *workers], check=True)

    assert seen + labels_of(stream) == expected


def test_the_training_process_itself_still_gets_the_request(flat, opened):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    next(opened(flat, num_workers=1).train_batches(0))

    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


class _Garbage:
    """What only a collection ends, as a library's object whose threads are not here."""

    def __init__(self, ended):
        self.itself = self
        self.ended = ended

    def __del__(self):
        self.ended.write_text(str(os.getpid()))


def test_loading_processes_do_not_end_what_is_the_training_processs(
    flat, opened, tmp_path
):
    expected = labels_of(opened(flat).train_batches(0))
    ended, collected = tmp_path / "ended", tmp_path / "collected"

    wanted = [collected]

    def collect():
        # It cannot be taken back: every later child comes here too.
        for file in wanted:
            file.write_text(str(gc.collect()))

    os.register_at_fork(after_in_child=collect)
    gc.disable()
    try:
        _Garbage(ended)
        found = labels_of(opened(flat, num_workers=1).train_batches(0))
        assert collected.exists()
        assert not ended.exists()
        gc.collect()
    finally:
        wanted.clear()
        gc.enable()

    assert found == expected
    assert ended.read_text() == str(os.getpid())


def test_loaders_that_are_not_closed_let_the_program_end(flat, tmp_path):
    manifest_of(flat, tmp_path)
    program = f"""
import pathlib
import torch
from nbkit.config import ExperimentConfig
from nbkit.datasets.manifest import read_manifest
from nbkit.worker import data

manifest = read_manifest(pathlib.Path({str(tmp_path)!r}) / "manifest.jsonl")
streams = []
for fields in ({{"loader_config": {{"num_workers": 1}}}}, {{"loader": "dali"}}):
    config = ExperimentConfig(data={str(flat)!r}, **fields)
    loader = data.load(config, manifest, data.Placement(torch.device("cpu"), 0, 1), 2)
    streams.append((loader, loader.train_batches(0)))
    next(streams[-1][1])
"""

    subprocess.run([sys.executable, "-c", program], check=True, timeout=patient(60))


def test_ranks_share_the_usable_cpus():
    def workers(cpus, shared_by=None, affinity=64, **fields):
        return cpus_for_loading(ExperimentConfig(**fields), cpus, shared_by, affinity)

    assert workers(64.0, gpus=4) == 15
    assert workers(1.5, gpus=4) == 1
    assert workers(64.0, gpus=1) == 32
    assert workers(16.0, 1, 16, gpus=4) == 15, "cores of its own"
    assert workers(8.0, 1, 16, gpus=4) == 1, "a quota is for all ranks together"
    assert workers(32.0, 2, 32, gpus=4) == 15, "a NUMA node for two of the ranks"
    assert workers(24.0, 2, 32, gpus=4) == 5, "and a quota for all of them"
    assert workers(64.0, loader_config={"num_workers": 0}) == 0


def synthetic(opened, batch_size=4, rank=0, world_size=1, **fields):
    values = {"images_per_epoch": 50, "num_classes": 7, **fields}
    return opened("synthetic", batch_size, rank, world_size, **values)


def test_synthetic_batches_follow_seed_rank_epoch_and_number(opened):
    def batches(epoch=1, first_batch=0, **fields):
        return list(synthetic(opened, **fields).train_batches(epoch, first_batch))

    whole = batches()
    assert same(batches(), whole)
    assert same(batches(first_batch=5), whole[5:])
    assert not same(batches(seed=1), whole)
    assert not same(batches(rank=1, world_size=2), whole[:6])
    assert not torch.equal(whole[0][0], whole[1][0])


def test_synthetic_batches_cost_no_copy(opened):
    images = [images for images, _ in synthetic(opened).train_batches(0)]

    assert len(images) == 12
    assert len({image.data_ptr() for image in images}) < 12


def test_synthetic_images_are_the_same_in_both_layouts(opened):
    last, first = (
        next(iter(synthetic(opened, memory_format=layout).train_batches(0)))[0]
        for layout in ("channels_last", "channels_first")
    )

    assert torch.equal(last, first)
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert first.is_contiguous()
    assert last.shape == (4, 3, 32, 32)


def test_synthetic_labels_are_within_the_classes(opened):
    one = synthetic(opened)

    labels = torch.cat([labels for _, labels in one.train_batches(0)])

    assert one.num_classes == 7
    assert 0 <= labels.min() < labels.max() < 7
    assert synthetic(opened, num_classes=None).num_classes == 1_000


@pytest.mark.parametrize("world_size", [1, 3])
def test_synthetic_evaluation_has_a_twentieth_of_the_images(opened, world_size):
    counts = [
        sum(
            int(mask.sum())
            for *_, mask in synthetic(
                opened, 4, rank, world_size, images_per_epoch=220
            ).evaluation_batches()
        )
        for rank in range(world_size)
    ]

    assert sum(counts) == 11


def test_a_synthetic_epoch_shorter_than_a_batch_is_refused(opened):
    one = synthetic(opened, images_per_epoch=9)
    assert (one.steps_per_epoch, one.train_images, one.dropped_images) == (2, 8, 1)

    with pytest.raises(ConfigError, match=r"images_per_epoch=9 is below .* 12"):
        synthetic(opened, world_size=3, images_per_epoch=9)
