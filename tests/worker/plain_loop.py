"""A training written out in one plain loop, to compare nbkit's own with.

It takes the images from nbkit's source of them and nothing else: learning rate, groups
of weights, loss scaling, the mean over ranks and the formula of LARS stand here again.
The optimizer gets finite gradients without a scale: steps that overflow are skipped by
an ``if``, so that an optimizer which does not bear a skipped step is found.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from nbkit import registry
from nbkit.config import ExperimentConfig
from nbkit.worker import data
from nbkit.worker.data import Batch, Data, Placement
from tests.gpu.reference import PlainLars
from tests.worker.images import CPU

FIRST_SCALE = 65536.0
"""GradScaler's own."""

_FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass
class Trained:
    """What a training leaves, step by step and at its end."""

    model: nn.Module
    losses: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    """Loss scale of every step."""
    skipped: list[bool] = field(default_factory=list)
    state: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Of the optimizer, by number of the weight, as in its ``state_dict``."""


def plain_loop(
    config: ExperimentConfig, *, ranks: int = 1, growth_interval: int = 2000
) -> Trained:
    """Train ``convnet`` on the CPU; the losses are those of rank 0's images."""
    assert config.model == "convnet"
    assert config.steps
    assert isinstance(config.batch_size_per_gpu, int)
    torch.manual_seed(config.seed)
    model = registry.resolve("models", "convnet")(num_classes=config.num_classes)
    model = model.to(memory_format=torch.channels_last)
    replicas = [model, *(copy.deepcopy(model) for _ in range(1, ranks))]
    sources = [
        data.load(config, None, Placement(CPU, rank, ranks), config.batch_size_per_gpu)
        for rank in range(ranks)
    ]
    streams = [_all_epochs(source) for source in sources]
    optimizer = _optimizer(config, model)
    scale = LossScale(growth_interval, enabled=config.precision == "fp16")
    trained = Trained(model)
    for step in range(config.steps):
        rate = _rate(config, step, sources[0].steps_per_epoch)
        losses = [
            _passes(config, replica, stream, scale.value)
            for replica, stream in zip(replicas, streams, strict=True)
        ]
        gradients = _mean_gradients(replicas)
        skipped = scale.enabled and not all(one.isfinite().all() for one in gradients)
        trained.losses.append(losses[0])
        trained.rates.append(rate)
        trained.scales.append(scale.value)
        trained.skipped.append(skipped)
        if not skipped:
            for weight, gradient in zip(model.parameters(), gradients, strict=True):
                weight.grad = gradient / scale.value
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            for replica in replicas[1:]:
                replica.load_state_dict(dict(model.named_parameters()), strict=False)
        scale.update(skipped=skipped)
        for replica in replicas:
            replica.zero_grad()
    weights = itertools.chain(*(group["params"] for group in optimizer.param_groups))
    for number, weight in enumerate(weights):
        trained.state[number] = dict(optimizer.state[weight])
    return trained


class LossScale:
    """Halved after a step that overflowed, doubled after so many that did not."""

    def __init__(self, growth_interval: int, *, enabled: bool) -> None:
        self.enabled = enabled
        self.value = FIRST_SCALE if enabled else 1.0
        self._interval, self._good_steps = growth_interval, 0

    def update(self, *, skipped: bool) -> None:
        if not self.enabled:
            return
        self._good_steps = 0 if skipped else self._good_steps + 1
        if skipped:
            self.value /= 2
        elif self._good_steps == self._interval:
            self.value, self._good_steps = 2 * self.value, 0


def _all_epochs(source: Data) -> Iterator[Batch]:
    for epoch in itertools.count():
        yield from source.train_batches(epoch)


def _passes(
    config: ExperimentConfig, model: nn.Module, stream: Iterator[Batch], scale: float
) -> float:
    """Add up the scaled gradients of one step; return the mean loss."""
    parts = config.gradient_accumulation_steps
    total = torch.zeros(())
    for _ in range(parts):
        images, labels = next(stream)
        format_ = _FORMATS.get(config.precision)
        cast = torch.autocast("cpu", dtype=format_) if format_ else None
        with cast or contextlib.nullcontext():
            loss = nn.functional.cross_entropy(
                model(images), labels, label_smoothing=config.label_smoothing
            )
            loss = loss / parts
        (loss * scale).backward()
        total += loss.detach()
    return total.item()


def _mean_gradients(replicas: list[nn.Module]) -> list[Any]:
    every = [[weight.grad for weight in one.parameters()] for one in replicas]
    return [sum(same) / len(replicas) for same in zip(*every, strict=True)]


def _rate(config: ExperimentConfig, step: int, steps_per_epoch: int) -> float:
    assert config.schedule == "cosine"
    assert config.steps
    warmup = round(config.learning_rate_warmup_epochs * steps_per_epoch)
    if step < warmup:
        return config.learning_rate * (step + 1) / warmup
    share = (step - warmup) / (config.steps - warmup)
    return config.learning_rate * (1 + math.cos(math.pi * share)) / 2


def _groups(config: ExperimentConfig, model: nn.Module) -> list[dict[str, Any]]:
    """Return matrices and filters, which are decayed, and everything else."""
    weights = list(model.parameters())
    decayed = [weight for weight in weights if weight.ndim > 1]
    plain = [weight for weight in weights if weight.ndim == 1]
    return [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]


def _optimizer(config: ExperimentConfig, model: nn.Module) -> Any:
    groups = _groups(config, model)
    if config.optimizer == "lars":
        return PlainLars(groups, config.momentum, config.lars_eta)
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=config.learning_rate, fused=True)
    return torch.optim.SGD(
        groups, lr=config.learning_rate, momentum=config.momentum, fused=True
    )
