"""Optimizers: LARS against its formula, who decays, what an overflow leaves alone."""

import copy
import math

import pytest
import torch
from torch import nn

from nbkit.config import ExperimentConfig
from nbkit.worker import optimizers
from nbkit.worker.optimizers import LARS

LR, MOMENTUM, DECAY, ETA = 0.5, 0.9, 0.01, 0.1
GRADIENTS = [[0.3, -0.4], [0.1, 0.2], [-0.5, 0.6]]


def config(**fields):
    values = {
        "learning_rate": LR,
        "momentum": MOMENTUM,
        "weight_decay": DECAY,
        "lars_eta": ETA,
        **fields,
    }
    return ExperimentConfig(**values)


def lars(weight):
    return LARS([weight], LR, momentum=MOMENTUM, weight_decay=DECAY, eta=ETA)


def lars_by_hand(weight, gradients):
    velocity = [0.0] * len(weight)
    for gradient in gradients:
        trust = ETA * norm(weight) / (norm(gradient) + DECAY * norm(weight))
        velocity = [
            MOMENTUM * v + LR * trust * (g + DECAY * w)
            for v, g, w in zip(velocity, gradient, weight, strict=True)
        ]
        weight = [w - v for w, v in zip(weight, velocity, strict=True)]
    return weight


def norm(values):
    return math.sqrt(sum(value * value for value in values))


def do_steps(optimizer, weight, gradients, scale=1.0, scaler=None):
    for gradient in gradients:
        weight.grad = scale * torch.tensor(gradient)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()


def test_lars_adapts_every_layer_by_itself():
    weights = [
        nn.Parameter(torch.tensor([3.0, -4.0])),
        nn.Parameter(torch.tensor([0.1, 0.2])),
    ]
    optimizer = LARS(weights, LR, momentum=MOMENTUM, weight_decay=DECAY, eta=ETA)
    for weight, gradient in zip(weights, GRADIENTS[:2], strict=True):
        weight.grad = torch.tensor(gradient)

    optimizer.step()

    assert weights[0].tolist() == pytest.approx(
        lars_by_hand([3.0, -4.0], GRADIENTS[:1]), rel=1e-5
    )
    assert weights[1].tolist() == pytest.approx(
        lars_by_hand([0.1, 0.2], GRADIENTS[1:2]), rel=1e-5
    )


def test_lars_moves_a_layer_that_starts_at_zero_and_rests_where_nothing_pulls():
    zero = nn.Parameter(torch.zeros(2))
    resting = nn.Parameter(torch.zeros(2))
    optimizer = LARS([zero, resting], LR, momentum=MOMENTUM, eta=ETA)
    zero.grad, resting.grad = torch.tensor([0.3, -0.4]), torch.zeros(2)

    optimizer.step()

    assert zero.tolist() == pytest.approx([-LR * 0.3, LR * 0.4])
    assert resting.tolist() == [0.0, 0.0]


def test_lars_updates_biases_and_norms_as_plain_sgd():
    model = nn.BatchNorm1d(2)
    twin = nn.BatchNorm1d(2)
    optimizer = optimizers.build(config(optimizer="lars"), model)
    plain = torch.optim.SGD(twin.parameters(), LR, momentum=MOMENTUM)

    for gradient in GRADIENTS:
        for module, step in ((model, optimizer.step), (twin, plain.step)):
            module.weight.grad = torch.tensor(gradient)
            module.bias.grad = torch.tensor(gradient)
            step()

    assert model.weight.tolist() == pytest.approx(twin.weight.tolist(), rel=1e-5)
    assert model.bias.tolist() == pytest.approx(twin.bias.tolist(), rel=1e-5)


def test_lars_undoes_the_scale_of_torchs_scaler():
    weight = nn.Parameter(torch.tensor([3.0, -4.0]))
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(torch.zeros(()))
    optimizer = lars(weight)

    do_steps(optimizer, weight, GRADIENTS[:1], 1024.0, scaler)
    do_steps(optimizer, weight, [[math.inf, 0.1]], 1.0, scaler)
    do_steps(optimizer, weight, GRADIENTS[1:], 512.0, scaler)

    expected = lars_by_hand([3.0, -4.0], GRADIENTS)
    assert weight.tolist() == pytest.approx(expected, rel=1e-5)


def test_lars_keeps_the_layout_of_gradients_whose_scale_it_undoes(monkeypatch):
    model = nn.Conv2d(2, 2, 3).to(memory_format=torch.channels_last)
    twin = copy.deepcopy(model)
    gradient = torch.randn_like(model.weight)
    optimizer = LARS([model.weight], LR)
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(4.0), torch.tensor(0.0)
    plain = LARS([twin.weight], LR)
    model.weight.grad, twin.weight.grad = 4 * gradient, gradient

    add, added = getattr(torch, "_foreach_add"), []  # noqa: B009
    monkeypatch.setattr(
        torch, "_foreach_add", lambda *of, **by: added.append(of) or add(*of, **by)
    )
    optimizer.step()
    plain.step()

    (unscaled,), _ = added[0]
    assert unscaled.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(model.weight, twin.weight)


@pytest.mark.parametrize("name", ["sgd", "lars", "adamw"])
@pytest.mark.parametrize("everything", [True, False])
def test_norms_and_biases_decay_only_when_asked(name, everything):
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.BatchNorm2d(1))
    for parameter in model.parameters():
        nn.init.ones_(parameter)
    fields = {"optimizer": name, "decay_norm_and_bias": everything, "lars_eta": 1e-6}
    optimizer = optimizers.build(config(**fields), model)

    # Gradients too small to matter: what shrinks has decayed.
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 0.0)
    optimizer.step()

    shrunk = {key for key, value in model.named_parameters() if value.item() < 1.0}
    others = {"0.bias", "1.weight", "1.bias"} if everything else set()
    assert shrunk == {"0.weight"} | others


def test_weights_that_are_not_trained_are_left_out():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)

    optimizer = optimizers.build(config(), model)

    trained = [weight for group in optimizer.param_groups for weight in group["params"]]
    assert {id(w) for w in trained} == {id(w) for w in model[1].parameters()}
