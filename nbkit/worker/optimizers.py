"""Optimizers by name: SGD with momentum, LARS and AdamW."""

# torch has no public name for its operations on many tensors together, with which its
# own optimizers are written.
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from nbkit.config import ExperimentConfig


def build(config: ExperimentConfig, model: nn.Module) -> Optimizer:
    """Return the configured optimizer over a model's parameters."""
    # Biases and normalisation weights (parameters of one dimension) are separate and
    # not decayed unless ``decay_norm_and_bias`` says so. SGD and AdamW are torch's in
    # their fused form, in which one kernel updates many parameters.
    # He et al.: Bag of Tricks for Image Classification, section 3.1 (no bias decay),
    # https://arxiv.org/abs/1812.01187
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for parameter in model.parameters():
        if parameter.requires_grad:
            one_dimension = parameter.ndim <= 1 and not config.decay_norm_and_bias
            (plain if one_dimension else decayed).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": config.weight_decay, "adapt": True},
        {"params": plain, "weight_decay": 0.0, "adapt": False},
    ]
    groups = [group for group in groups if group["params"]]
    rate = config.learning_rate
    if config.optimizer == "lars":
        return LARS(groups, lr=rate, momentum=config.momentum, eta=config.lars_eta)
    if config.optimizer == "adamw":
        return AdamW(groups, lr=rate, fused=True)
    sgd = SGD(groups, lr=rate, momentum=config.momentum, fused=True)
    if config.momentum:
        _start_momentum(sgd)
    return sgd


def _start_momentum(optimizer: SGD) -> None:
    """Give every weight its momentum buffer, of zeros."""
    # SGD's fused form makes them in its first step without writing them, and leaves
    # them so where GradScaler skips that step: the next one would add whatever the
    # memory held. A buffer of zeros makes the first step what it is without one, the
    # gradient.
    for group in optimizer.param_groups:
        for weight in group["params"]:
            optimizer.state[weight]["momentum_buffer"] = torch.zeros_like(weight)


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Set the learning rate of the next step."""
    for group in optimizer.param_groups:
        group["lr"] = rate


class LARS(Optimizer):
    """Layer-wise adaptive rate scaling: SGD whose rate follows each layer's norms.

    For a parameter ``w`` with gradient ``g``: ``u = g + weight_decay * w``; the local
    rate is ``eta * |w| / (|g| + weight_decay * |w|)``, or 1 where a norm is 0 and in
    groups with ``adapt=False``; then ``v = momentum * v + lr * local * u`` and
    ``w = w - v``.

    Notes
    -----
    Norms stay on the device, and with a GradScaler a step whose gradients overflowed
    is skipped there too: the host never waits for either.

    References
    ----------
    You, Gitman, Ginsburg: Large Batch Training of Convolutional Networks, equation 6
    and algorithm 1, https://arxiv.org/abs/1708.03888
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        momentum: float = 0.9,
        eta: float = 0.001,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "eta": eta,
            "weight_decay": weight_decay,
            "adapt": True,
        }
        super().__init__(params, defaults)
        # GradScaler.step then hands its scale and its finding over for the length of a
        # step, as it does to torch's fused optimizers, in place of unscaling by itself
        # and reading the finding back.
        self._step_supports_amp_scaling = True

    @torch.no_grad()
    def step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Do one step; every parameter of a group in a few kernels (foreach)."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [w for w in group["params"] if w.grad is not None]
            if weights:
                self._step_group(group, weights)
        return loss

    def _step_group(self, group: dict[str, Any], weights: list[torch.Tensor]) -> None:
        updates = self._updates(group, weights)
        states = [self.state[weight] for weight in weights]
        for weight, state in zip(weights, states, strict=True):
            if "velocity" not in state:
                state["velocity"] = torch.zeros_like(weight)
        velocities = [state["velocity"] for state in states]
        overflowed = self._overflowed()
        if overflowed is None:
            torch._foreach_mul_(velocities, group["momentum"])
            torch._foreach_add_(velocities, updates)
            torch._foreach_sub_(weights, velocities)
            return
        # The same with factors that leave everything as it is after an overflow.
        kept = torch.where(overflowed, 0.0, 1.0)
        momentum = torch.where(overflowed, 1.0, group["momentum"])
        torch._foreach_mul_(velocities, momentum)
        torch._foreach_add_(velocities, torch._foreach_mul(updates, kept))
        torch._foreach_sub_(weights, torch._foreach_mul(velocities, kept))

    def _updates(
        self, group: dict[str, Any], weights: list[torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        """Return what is added to every velocity."""
        gradients = self._unscaled([w.grad for w in weights if w.grad is not None])
        decay = group["weight_decay"]
        updates = tuple(torch._foreach_add(gradients, weights, alpha=decay))
        if group["adapt"]:
            weight_norms = torch.stack(torch._foreach_norm(weights))
            gradient_norms = torch.stack(torch._foreach_norm(gradients))
            norms = gradient_norms + decay * weight_norms
            usable = (weight_norms > 0) & (gradient_norms > 0)
            trust = torch.where(usable, group["eta"] * weight_norms / norms, 1.0)
            torch._foreach_mul_(updates, list(trust.unbind()))
        torch._foreach_mul_(updates, group["lr"])
        return updates

    def _unscaled(self, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return gradients without the loss scale; zeros after an overflow."""
        scale = getattr(self, "grad_scale", None)
        if scale is not None:
            gradients = list(torch._foreach_mul(gradients, 1 / scale))
        overflowed = self._overflowed()
        if overflowed is not None:
            # `masked_fill` loses channels_last: foreach takes a kernel for each tensor
            # where gradients and weights have different layouts.
            gradients = [
                torch.where(overflowed, 0.0, gradient) for gradient in gradients
            ]
        return gradients

    def _overflowed(self) -> torch.Tensor | None:
        """Return what GradScaler found; None in a step without one."""
        found_inf = getattr(self, "found_inf", None)
        return None if found_inf is None else found_inf > 0
