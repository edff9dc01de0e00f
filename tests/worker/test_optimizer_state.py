"""The optimizers' state: zeros at first, untouched by skipped steps, kept by a resume.

GradScaler skips the steps whose gradients are not finite, the very first ones above
all: its first scale is far too high for most models.
"""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn

from nbkit.config import ExperimentConfig
from nbkit.worker import optimizers

NAMES = ["sgd", "lars", "adamw"]
STATE = {
    "sgd": ["momentum_buffer"],
    "lars": ["velocity"],
    "adamw": ["exp_avg", "exp_avg_sq"],
}

# Steps whose gradients overflow: none, the first ones, a later one.
SKIPPED = {"none": (), "first": (0, 1), "later": (3,), "first_and_later": (0, 4)}
STEPS = 6

# The fused kernels add in another order, each a rounding (2 ** -24) of its own.
ROUNDING = 1e-6

pytestmark = pytest.mark.usefixtures("process_as_before")


def config(name):
    return ExperimentConfig(
        optimizer=name, learning_rate=0.1, weight_decay=0.01, lars_eta=0.1
    )


def made():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3))
    return model.to(memory_format=torch.channels_last)


def scaler_for(skipped):
    return torch.amp.GradScaler("cpu", enabled=skipped is not None)


def do_steps(model, optimizer, scaler, skipped, steps=range(STEPS)):
    """Do steps with gradients that depend on nothing but their number."""
    for step in steps:
        torch.manual_seed(100 + step)
        scale = scaler.scale(torch.ones(()))
        for weight in model.parameters():
            weight.grad = torch.randn_like(weight) * scale
        if step in (skipped or ()):
            next(model.parameters()).grad[0, 0, 0, 0] = torch.inf
        scaler.step(optimizer)
        scaler.update()


def with_zeros(name, model):
    """Return the optimizer with its state set to zeros, whatever it begins with."""
    optimizer = optimizers.build(config(name), model)
    for group in optimizer.param_groups:
        for weight in group["params"]:
            state = optimizer.state[weight]
            state.clear()
            for key in STATE[name]:
                state[key] = torch.zeros_like(weight)
            if name == "adamw":
                state["step"] = torch.zeros(())
    return optimizer


def assert_same(model, other):
    for weight, twin in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(weight, twin)


@pytest.fixture(params=[None, *SKIPPED.values()], ids=["unscaled", *SKIPPED])
def skipped(request):
    return request.param


@pytest.mark.parametrize("name", NAMES)
def test_an_optimizer_begins_as_if_its_state_were_zeros(name, skipped):
    model, twin = made(), made()
    optimizer = optimizers.build(config(name), model)
    reference = with_zeros(name, twin)

    do_steps(model, optimizer, scaler_for(skipped), skipped)
    do_steps(twin, reference, scaler_for(skipped), skipped)

    assert_same(model, twin)
    for key in STATE[name]:
        for weight, other in zip(model.parameters(), twin.parameters(), strict=True):
            assert torch.equal(
                optimizer.state[weight][key], reference.state[other][key]
            )


@pytest.mark.parametrize("name", NAMES)
def test_a_skipped_step_is_as_if_it_had_not_been(name, skipped):
    model, twin = made(), made()
    done = [step for step in range(STEPS) if step not in (skipped or ())]

    do_steps(model, optimizers.build(config(name), model), scaler_for(()), skipped)
    do_steps(twin, optimizers.build(config(name), twin), scaler_for(None), None, done)

    assert_same(model, twin)


@pytest.mark.parametrize("name", NAMES)
def test_no_optimizer_reads_memory_that_nobody_has_written(name, skipped, monkeypatch):
    model, twin = made(), made()
    do_steps(twin, optimizers.build(config(name), twin), scaler_for(skipped), skipped)

    def poisoned(like, **options):
        return torch.full_like(like, torch.nan, **options)

    monkeypatch.setattr(torch, "empty_like", poisoned)
    optimizer = optimizers.build(config(name), model)
    do_steps(model, optimizer, scaler_for(skipped), skipped)

    assert all(weight.isfinite().all() for weight in model.parameters())
    assert_same(model, twin)


def unfused(name, model):
    """Return torch's form of one weight after the other, with nbkit's groups."""
    groups = copy.copy(optimizers.build(config(name), model).param_groups)
    groups = [
        {"params": group["params"], "weight_decay": group["weight_decay"]}
        for group in groups
    ]
    if name == "adamw":
        return torch.optim.AdamW(groups, 0.1, foreach=False, fused=False)
    return torch.optim.SGD(groups, 0.1, momentum=0.9, foreach=False, fused=False)


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_the_fused_form_trains_as_the_plain_one_with_and_without_skipped_steps(
    name, skipped
):
    model, twin = made(), made()

    do_steps(model, optimizers.build(config(name), model), scaler_for(skipped), skipped)
    do_steps(twin, unfused(name, twin), scaler_for(skipped), skipped)

    for weight, other in zip(model.parameters(), twin.parameters(), strict=True):
        limit = ROUNDING * float(other.detach().abs().max())
        assert torch.allclose(weight, other, rtol=0, atol=limit)


@pytest.mark.parametrize("stopped_after", [1, 3])
@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_optimizer_goes_on_to_the_bit(name, skipped, stopped_after):
    model, twin, resumed = made(), made(), made()
    do_steps(model, optimizers.build(config(name), model), scaler_for(skipped), skipped)

    optimizer, scaler = optimizers.build(config(name), twin), scaler_for(skipped)
    do_steps(twin, optimizer, scaler, skipped, range(stopped_after))
    file = io.BytesIO()
    parts = {"model": twin, "optimizer": optimizer, "scaler": scaler}
    torch.save({key: part.state_dict() for key, part in parts.items()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    after, scaler = optimizers.build(config(name), resumed), scaler_for(skipped)
    for key, part in (("model", resumed), ("optimizer", after), ("scaler", scaler)):
        part.load_state_dict(saved[key])
    do_steps(resumed, after, scaler, skipped, range(stopped_after, STEPS))

    assert_same(resumed, model)
