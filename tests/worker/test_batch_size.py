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
    ("limit", "found"), [(1, 1), (7, 6), (64, 64), (100, 96), (200, 192)]
)
def test_nothing_beyond_the_limit_is_tried(limit, found):
    tried = []

    assert batch_size.largest(lambda size: not tried.append(size), limit) == found
    assert max(tried) <= limit


@pytest.mark.parametrize(
    ("capacity", "expected"), [(100, [16, 32, 64, 128, 96]), (5, [16, 8, 4, 6])]
)
def test_no_size_is_tried_twice_or_above_one_that_did_not_fit(capacity, expected):
    tried = []

    def fits(size):
        tried.append(size)
        return size <= capacity

    batch_size.largest(fits)

    assert tried == expected


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
    "said",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be reported later",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "GET was unable to find an engine to execute this computation",
        "NCCL error: unhandled cuda error, Cuda failure 2 'out of memory'",
    ],
)
def test_a_size_whose_libraries_get_no_memory_does_not_fit(monkeypatch, said):
    def run_out(config, device, size):
        raise RuntimeError(said)

    monkeypatch.setattr(batch_size, "_train_two_steps", run_out)

    assert not batch_size.fits(ExperimentConfig(), CPU, 16)


def test_a_capture_that_hides_a_lack_of_memory_does_not_fit(monkeypatch):
    def run_out(config, device, size):
        try:
            raise torch.OutOfMemoryError
        finally:
            # As the end of a capture does that has failed.
            message = "CUDA error: operation failed due to a previous error"
            raise RuntimeError(message)

    monkeypatch.setattr(batch_size, "_train_two_steps", run_out)

    assert not batch_size.fits(ExperimentConfig(), CPU, 16)


def test_a_probe_of_cuda_graphs_captures_them(monkeypatch):
    captured = []
    monkeypatch.setattr(
        batch_size.graphs, "capture", lambda *given: captured.append(given[-1])
    )
    config = ExperimentConfig(model="resnet18", image_size=32, cuda_graphs=True)

    batch_size._train_two_steps(config, CPU, 4)

    assert captured == [4]


def test_an_error_of_the_program_ends_the_search(monkeypatch):
    def fail(config, device, size):
        message = "CUDA error: device-side assert triggered"
        raise RuntimeError(message)

    monkeypatch.setattr(batch_size, "_train_two_steps", fail)

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
    assert batch_size._usable_share(ExperimentConfig(**fields)) == pytest.approx(share)


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

    monkeypatch.setattr(batch_size, "_largest_on_gpu", search)
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
    monkeypatch.setattr(batch_size, "_largest_on_gpu", search)

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
