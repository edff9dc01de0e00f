"""The estimate of memory follows what models keep, and says when it does not know."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from nbkit.config import ExperimentConfig
from nbkit.estimates.memory import estimate_memory


def estimate(**fields):
    found = estimate_memory(ExperimentConfig(**fields))
    assert found is not None
    return found


def test_every_model_that_comes_with_nbkit_was_measured():
    built_in = [
        entry.name
        for entry in entry_points(group="nbkit.models")
        if entry.value.startswith(("torchvision.", "nbkit."))
    ]

    unknown = [name for name in built_in if not estimate(model=name).total_bytes]

    assert len(built_in) > 80
    assert unknown == []


def test_memory_grows_with_what_makes_it_grow():
    plain = estimate(batch_size_per_gpu=32)

    twice = estimate(batch_size_per_gpu=64)
    larger = estimate(batch_size_per_gpu=32, image_size=448)
    half = estimate(batch_size_per_gpu=32, precision="bf16")

    assert twice.activations_bytes == 2 * plain.activations_bytes
    assert larger.activations_bytes == 4 * plain.activations_bytes
    assert half.activations_bytes < 0.6 * plain.activations_bytes
    assert half.weights_bytes == 1.5 * plain.weights_bytes


@pytest.mark.parametrize(
    ("fields", "moments"),
    [
        ({"optimizer": "sgd"}, 1),
        ({"optimizer": "sgd", "momentum": 0.0}, 0),
        ({"optimizer": "lars"}, 1),
        ({"optimizer": "adamw"}, 2),
    ],
)
def test_an_optimizer_takes_as_much_as_it_remembers(fields, moments):
    found = estimate(**fields)

    assert found.optimizer_bytes == moments * found.gradients_bytes


@pytest.mark.parametrize(
    "fields",
    [
        {"batch_size_per_gpu": "max"},
        {"task": "allreduce"},
        {"task": "function"},
    ],
)
def test_what_cannot_be_known_is_not_guessed(fields):
    assert estimate_memory(ExperimentConfig(**fields)) is None
    unmeasured = ExperimentConfig.from_store('{"model": "my_own_network"}')
    assert estimate_memory(unmeasured) is None
