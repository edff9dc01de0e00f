"""Whether gradients were finite: what every step tells for free, and what the end."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from nbkit.config import ExperimentConfig
from nbkit.worker import optimizers
from nbkit.worker.finiteness import FiniteWatch
from nbkit.worker.precision import Precision

CPU = torch.device("cpu")


def _step(precision, model, optimizer, factor):
    """Train one step whose gradients are multiplied by a factor."""
    optimizer.zero_grad()
    loss = model(torch.ones(2, 3)).square().sum() * factor
    precision.scaler.scale(loss).backward()
    return precision.update(optimizer)


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_formats_without_loss_scaling_have_none_to_tell_of(name):
    config = ExperimentConfig(precision=name)
    precision, model = Precision(config, CPU), nn.Linear(3, 2)

    assert _step(precision, model, optimizers.build(config, model), 1.0) is None


@pytest.mark.parametrize("spoiled", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("optimizer", ["sgd", "lars", "adamw"])
def test_one_update_by_a_gradient_that_is_not_finite_is_seen_at_the_end(
    optimizer, spoiled
):
    config = ExperimentConfig(optimizer=optimizer)
    precision, model = Precision(config, CPU), nn.Linear(3, 2)
    step = optimizers.build(config, model)

    _step(precision, model, step, 1.0)
    finite_before = FiniteWatch(model).look_now(1)
    model.weight.grad[0, 0] = spoiled
    precision.update(step)
    for _ in range(20):
        # What is wrong with one weight does not reach the others' gradients.
        step.zero_grad()
        (1e-3 * model.bias.sum() + 0 * model.weight.nan_to_num().sum()).backward()
        precision.update(step)

    assert finite_before
    assert not FiniteWatch(model).look_now(2)
