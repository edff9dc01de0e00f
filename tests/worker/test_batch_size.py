"""The largest batch: which sizes are tried, and who may ask."""

import gc
import os
import sys

import pytest
import torch

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.store.paths import RunPaths
from nbkit.worker import batch_size
from nbkit.worker.rank import Rank

CPU = torch.device("cpu")


@pytest.fixture(autouse=True, scope="module")
def little_to_collect():
    """Leave what is alive out of the collections of garbage that every probe makes."""
    gc.collect()
    gc.freeze()


@pytest.mark.parametrize(
    ("capacity", "found"),
    [
        (0, 0),
        (1, 1),
        (2, 2),
        (3, 3),
        (5, 4),
        (6, 6),
        (15, 12),
        (16, 16),
        (23, 16),
        (24, 24),
        (100, 96),
        (127, 96),
        (128, 128),
        (300, 256),
    ],
)
def test_powers_of_two_and_the_half_steps_between_are_found(capacity, found):
    assert batch_size.largest(lambda size: size <= capacity) == found


@pytest.mark.parametrize(
    ("capacity", "limit", "expected"),
    [
        (999, 1, [1]),
        (999, 7, [4, 6]),
        (999, 64, [16, 32, 64]),
        (999, 200, [16, 32, 64, 128, 192]),
        (100, batch_size.LIMIT, [16, 32, 64, 128, 96]),
        (5, batch_size.LIMIT, [16, 8, 4, 6]),
    ],
)
def test_largest_tries_few_sizes_within_the_limit(capacity, limit, expected):
    tried = []

    def fits(size):
        tried.append(size)
        return size <= capacity

    largest = batch_size.largest(fits, limit)

    assert tried == expected
    assert largest == max(size for size in tried if size <= capacity)


@pytest.mark.parametrize("optimizer", ["sgd", "lars", "adamw"])
def test_two_steps_fit_in_ordinary_memory(optimizer):
    config = ExperimentConfig(
        model="squeezenet1_1", image_size=32, optimizer=optimizer, num_classes=10
    )

    assert batch_size.fits(config, CPU, 4)


def test_an_error_that_is_not_about_memory_is_not_taken_for_it():
    config = ExperimentConfig(model="resnet18", image_size=32, num_classes=10)

    # The last map is one value per channel, which batch normalisation refuses.
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        batch_size.fits(config, CPU, 1)


@pytest.mark.parametrize(
    ("hidden", "message"),
    [
        (None, "CUDA error: out of memory\nCUDA kernel errors might be reported later"),
        (None, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate()`"),
        (None, "cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        (None, "GET was unable to find an engine to execute this computation"),
        (None, "NCCL error: unhandled cuda error, Cuda failure 2 'out of memory'"),
        # As the end of a capture that has failed.
        (torch.OutOfMemoryError(), "CUDA error: failed due to a previous error"),
    ],
)
def test_fits_when_libraries_get_no_memory(monkeypatch, hidden, message):
    def run_out(*_):
        try:
            if hidden:
                raise hidden
        finally:
            raise RuntimeError(message)

    monkeypatch.setattr(batch_size.synthetic, "Synthetic", run_out)

    assert not batch_size.fits(ExperimentConfig(), CPU, 16)


def test_a_probe_of_cuda_graphs_captures_them(monkeypatch):
    captured = []
    monkeypatch.setattr(
        batch_size.graphs, "capture", lambda *given: captured.append(given[-1])
    )
    config = ExperimentConfig(
        model="squeezenet1_1", image_size=32, num_classes=10, cuda_graphs=True
    )

    assert batch_size.fits(config, CPU, 4)
    assert captured == [4]


def test_an_error_of_the_program_ends_the_search(monkeypatch):
    def fail(*_):
        message = "CUDA error: device-side assert triggered"
        raise RuntimeError(message)

    monkeypatch.setattr(batch_size.synthetic, "Synthetic", fail)

    with pytest.raises(RuntimeError, match="device-side assert"):
        batch_size.fits(ExperimentConfig(), CPU, 16)


@pytest.mark.parametrize(
    ("fields", "share"),
    [
        ({}, 0.95),
        ({"cuda_graphs": True}, 0.95),
        ({"loader": "dali", "data": "photos"}, 0.85),
        ({"loader": "dali"}, 0.95),
        ({"loader": "torch", "data": "photos"}, 0.95),
    ],
)
def test_memory_is_left_for_pools_that_a_probe_does_not_have(fields, share):
    assert batch_size.usable_share(ExperimentConfig(**fields)) == pytest.approx(share)


@pytest.mark.parametrize("oversubscribe", [False, True])
def test_max_is_refused_without_a_gpu_of_its_own(tmp_path, oversubscribe):
    config = ExperimentConfig(batch_size_per_gpu="max", oversubscribe=oversubscribe)

    with pytest.raises(ConfigError, match=r"'max'.*Set a number"):
        batch_size.resolve(config, lone_rank(tmp_path), CPU, None, None)


@pytest.mark.usefixtures("process_as_before")
def test_what_a_model_prints_and_logs_in_a_probe_is_not_its_answer(
    tmp_path, monkeypatch
):
    def search(config):
        print("a model prints")
        nbkit.log({"spread": 1.0})
        return 48

    monkeypatch.setattr(batch_size, "largest_on_gpu", search)
    assert answer_of_a_probe(tmp_path, monkeypatch, 10) == "48"


@pytest.mark.usefixtures("process_as_before")
@pytest.mark.parametrize(("found", "outputs"), [(14, 14), (1, 2)])
def test_a_probe_has_as_many_outputs_as_the_data_have_classes(
    tmp_path, monkeypatch, found, outputs
):
    built = []
    build = batch_size.models.build

    def note(config, num_classes):
        built.append(num_classes)
        return build(config, num_classes)

    def search(config):
        return int(batch_size.fits(config, CPU, 4))

    monkeypatch.setattr(batch_size.models, "build", note)
    monkeypatch.setattr(batch_size, "largest_on_gpu", search)

    assert answer_of_a_probe(tmp_path, monkeypatch, found) == "1"
    assert built == [outputs]


def answer_of_a_probe(folder, monkeypatch, num_classes):
    """Return what a probe's process writes for its rank."""
    config = ExperimentConfig(model="squeezenet1_1", image_size=32)
    (folder / "config.json").write_text(config.to_json())
    reading, writing = os.pipe()
    arguments = ["probe", str(folder), str(num_classes), str(writing)]
    monkeypatch.setattr(sys, "argv", arguments)
    batch_size.main()
    with os.fdopen(reading) as answer:
        return answer.read()


@pytest.mark.gpu
def test_the_largest_batch_fits_its_gpu_and_twice_as_much_does_not(tmp_path):
    config = ExperimentConfig(batch_size_per_gpu="max", precision="bf16")
    (tmp_path / "config.json").write_text(config.to_json())
    device = torch.device("cuda", 0)
    rank = lone_rank(tmp_path)
    rank.paths.rank(0, 0).probe.parent.mkdir(parents=True)

    found = batch_size.resolve(config, rank, device, None, None)

    assert batch_size.fits(config, device, found)
    assert not batch_size.fits(config, device, 2 * found)


def lone_rank(folder):
    return Rank(RunPaths(folder), 0, 0, 1, 1, 0, None)
