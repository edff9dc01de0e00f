"""Training, run in this process, against a plain loop: every number, to the bit.

Number formats, optimizers and the ways of a training, each with each in pairs; every
three of them are in tests/soak. The loop of the other side is in ``plain_loop.py``.
"""

from __future__ import annotations

import functools

import pytest
import torch

from nbkit.config import ExperimentConfig
from nbkit.store.heartbeat import Phase
from nbkit.store.metrics import read_json_lines
from nbkit.worker import checkpoint
from tests.launch.conftest import plugins, store
from tests.training import go_on_here, train_here
from tests.worker.plain_loop import plain_loop

__all__ = ["plugins", "store"]

STEPS = 9
STEPS_PER_EPOCH = 5
STOPPED_AFTER = 6
GROWTH_INTERVAL = 2
"""Steps after which the loss scale is doubled, so that it overflows again."""

FORMATS = ["fp32", "bf16", "fp16"]
RATES = {"sgd": 0.01, "lars": 0.2, "adamw": 0.005}
OPTIMIZERS = [*RATES]
WAYS = ["eager", "accumulation", "resumed", "accumulation_resumed"]
PAIRS = [
    (precision, OPTIMIZERS[(row + column) % 3], way)
    for row, precision in enumerate(FORMATS)
    for column, way in enumerate(WAYS)
]

pytestmark = pytest.mark.usefixtures("process_as_before")


@pytest.fixture
def quickly_growing_scale(monkeypatch):
    scaler = functools.partial(torch.amp.GradScaler, growth_interval=GROWTH_INTERVAL)
    monkeypatch.setattr(torch.amp, "GradScaler", scaler)


def config_of(precision, optimizer, way):
    parts = 3 if "accumulation" in way else 1
    return ExperimentConfig(
        model="convnet",
        num_classes=10,
        image_size=16,
        device="cpu",
        batch_size_per_gpu=4,
        gradient_accumulation_steps=parts,
        images_per_epoch=STEPS_PER_EPOCH * 4 * parts,
        steps=STEPS,
        warmup_steps=1,
        precision=precision,
        optimizer=optimizer,
        learning_rate=RATES[optimizer],
        learning_rate_warmup_epochs=0.4,
        weight_decay=0.01,
        lars_eta=0.02,
        label_smoothing=0.1,
        checkpoint_at_end=True,
        tensorboard=False,
    )


@pytest.mark.parametrize(("precision", "optimizer", "way"), PAIRS)
def test_losses_and_weights_are_those_of_a_plain_loop(
    precision, optimizer, way, quickly_growing_scale
):
    compare(precision, optimizer, way)


def compare(precision, optimizer, way):
    """Train, and see that the plain loop computes the same."""
    config = config_of(precision, optimizer, way)
    expected = plain_loop(config, growth_interval=GROWTH_INTERVAL)

    stop_at = (STOPPED_AFTER, Phase.DATA) if "resumed" in way else None
    run = train_here(config, stop_at=stop_at)
    if stop_at:
        go_on_here(run)
    lines = read_json_lines(run.paths.metrics)
    lines = [line for line in lines if line["kind"] == "step"]
    state, _ = checkpoint.load(checkpoint.latest(run.paths.checkpoints), 0, 1)

    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    assert [line["learning_rate"] for line in lines] == expected.rates
    assert [line["loss"] for line in lines] == expected.losses
    assert_same(state["model"], expected.model.state_dict())
    found = state["optimizer"]["state"]
    assert found.keys() == expected.state.keys()
    for number, values in expected.state.items():
        assert_same(found[number], values)
    if precision == "fp16":
        assert [line["loss_scale"] for line in lines] == expected.scales
        assert [line["update_skipped"] for line in lines] == expected.skipped
        assert expected.skipped[0]


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
