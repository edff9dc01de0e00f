"""Trainings in one plain loop, unfused: `python reference.py CONFIGS ANSWERS`.

It takes the images and the new model from nbkit and nothing else. The optimizer is
torch's without its fused form, or LARS, one weight after the other; GradScaler reads on
the host whether a gradient is finite, as it does for every optimizer that does not read
it itself. Where no update is skipped with GradScaler's own first loss scale, it starts
with a higher one.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nbkit.config import ExperimentConfig
from nbkit.worker import data, models

_FIRST_SCALE = 65536.0
_HIGHEST_SCALE = 2.0**96
_FORMATS = {"fp16": torch.float16, "bf16": torch.bfloat16}
_LAYOUTS = {
    "channels_last": torch.channels_last,
    "channels_first": torch.contiguous_format,
}


def main() -> None:
    """Train as the file says, by name, and write every loss."""
    asked = json.loads(Path(sys.argv[1]).read_bytes())
    answers = {
        name: train(ExperimentConfig.from_json(text), torch.device("cuda", 0))
        for name, text in asked.items()
    }
    Path(sys.argv[2]).write_text(json.dumps(answers))


def train(config: ExperimentConfig, device: torch.device) -> dict[str, Any]:
    """Return losses, first loss scale and skipped steps of a training."""
    assert config.schedule == "cosine"
    assert config.steps
    assert isinstance(config.batch_size_per_gpu, int)
    torch.backends.cudnn.benchmark = config.cudnn_benchmark != "off"
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(config.seed)
    place = data.Placement(device, 0, 1)
    batches = data.load(config, None, place, config.batch_size_per_gpu)
    model = models.build(config, batches.num_classes).to(device)
    model = model.to(memory_format=_LAYOUTS[config.memory_format])  # type: ignore[call-overload]
    model.train()
    stream = batches.train_batches(0)
    scale = _overflowing_scale(config, model, next(batches.train_batches(0)))
    scaler = torch.amp.GradScaler(
        device.type, init_scale=scale, enabled=config.precision == "fp16"
    )
    weights = list(model.parameters())
    groups = [
        {
            "params": [weight for weight in weights if weight.ndim > 1],
            "weight_decay": config.weight_decay,
        },
        {
            "params": [weight for weight in weights if weight.ndim <= 1],
            "weight_decay": 0.0,
        },
    ]
    optimizer = _optimizer(config, groups)
    parts = config.gradient_accumulation_steps
    losses: list[float] = []
    skipped: list[int] = []
    for step in range(config.steps):
        share = step / config.steps
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * (1 + math.cos(math.pi * share)) / 2
        optimizer.zero_grad()
        total = torch.zeros((), device=device)
        for _ in range(parts):
            loss = _loss(config, model, *next(stream)) / parts
            scaler.scale(loss).backward()
            total += loss.detach()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        losses.append(total.item())
        if scaler.get_scale() < before:
            skipped.append(step + 1)
    return {"first_scale": scale, "losses": losses, "skipped": skipped}


class PlainLars:
    """LARS, one weight after the other."""

    def __init__(self, groups: list[dict[str, Any]], momentum: float, eta: float):
        self.state: dict[torch.Tensor, dict[str, torch.Tensor]] = {}
        self.param_groups, self._momentum, self._eta = groups, momentum, eta

    def zero_grad(self) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                self._update(weight, group)

    def _update(self, weight: torch.Tensor, group: dict[str, Any]) -> None:
        assert weight.grad is not None
        decay = group["weight_decay"]
        # As one operation, which rounds once.
        update = weight.grad.add(weight, alpha=decay)
        if weight.ndim > 1:
            norm, pull = weight.norm(), weight.grad.norm()
            if norm > 0 and pull > 0:
                update = update * (self._eta * norm / (pull + decay * norm))
        update = update * group["lr"]
        state = self.state.setdefault(weight, {"velocity": torch.zeros_like(weight)})
        state["velocity"] = self._momentum * state["velocity"] + update
        weight -= state["velocity"]


def _optimizer(config: ExperimentConfig, groups: list[dict[str, Any]]) -> Any:
    if config.optimizer == "lars":
        return PlainLars(groups, config.momentum, config.lars_eta)
    plain: dict[str, Any] = {"lr": 0.0, "fused": False, "foreach": False}
    if config.optimizer == "adamw":
        return torch.optim.AdamW(groups, **plain)
    return torch.optim.SGD(groups, momentum=config.momentum, **plain)


def _overflowing_scale(
    config: ExperimentConfig, model: nn.Module, batch: data.Batch
) -> float:
    """Return the first loss scale, high enough that the first step overflows."""
    before = copy.deepcopy(model.state_dict())
    scale = _FIRST_SCALE
    while config.precision == "fp16" and scale < _HIGHEST_SCALE:
        (_loss(config, model, *batch) * scale).backward()
        gradients = [w.grad for w in model.parameters() if w.grad is not None]
        finite = all(bool(torch.isfinite(one).all()) for one in gradients)
        model.zero_grad()
        if not finite:
            break
        scale *= 16
    model.load_state_dict(before)
    return scale


def _loss(
    config: ExperimentConfig,
    model: nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
) -> torch.Tensor:
    format_ = _FORMATS.get(config.precision)
    device = images.device.type
    cast = torch.autocast(device, dtype=format_) if format_ else None
    with cast or contextlib.nullcontext():
        return nn.functional.cross_entropy(model(images), labels)


if __name__ == "__main__":
    main()
