"""The estimate of memory follows what models keep, and says when it does not know."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from nbkit import registry
from nbkit.config import ExperimentConfig
from nbkit.estimates.memory import estimate_memory
from nbkit.worker import models
from tests.estimates.model_memory import measure, saved_bytes


def estimate(**fields):
    found = estimate_memory(ExperimentConfig(**fields))
    assert found is not None
    return found


def test_every_model_that_comes_with_nbkit_was_measured():
    built_in = [
        entry.name
        for entry in registry._entries("models")
        if entry.value.startswith(("torchvision.", "nbkit."))
    ]

    unknown = [name for name in built_in if not estimate(model=name).total_bytes]

    assert len(built_in) > 80
    assert unknown == []


# A convolution network, one with depthwise convolutions, and a transformer.
@pytest.mark.skipif(
    torch.__version__ < (2, 10), reason="an older torch aborts without the fake GPU"
)
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "vit_b_32"])
def test_the_table_is_what_is_measured_now(name):
    found = measure(name)

    for precision, per_image in (
        ("fp32", found.activation_bytes_fp32),
        ("bf16", found.activation_bytes_16bit),
    ):
        said = estimate(
            model=name,
            image_size=found.image_size,
            batch_size_per_gpu=1,
            precision=precision,
        )
        # Another version of torch may keep something else here and there.
        assert said.activations_bytes == pytest.approx(per_image, rel=0.1)
    assert said.gradients_bytes == 4 * found.parameters


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "vit_b_32"])
def test_the_estimate_is_near_what_a_real_forward_pass_keeps(name):
    config = ExperimentConfig(model=name, batch_size_per_gpu=3)
    model = models.build(config, 1_000).train()
    images, labels = torch.randn(3, 3, 224, 224), torch.zeros(3, dtype=torch.long)

    kept = saved_bytes(
        lambda: functional.cross_entropy(model(images), labels),
        [*model.parameters(), *model.buffers()],
    )

    said = estimate(model=name, batch_size_per_gpu=3).activations_bytes
    assert said == pytest.approx(kept, rel=0.1)


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
