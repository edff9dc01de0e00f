"""Learning rate of every step, as a pure function."""

from __future__ import annotations

import math

from nbkit.config import ExperimentConfig


def learning_rate(
    config: ExperimentConfig, step: int, steps_per_epoch: int, total_steps: float
) -> float:
    """Return the learning rate of an optimizer step; of infinite steps, the peak."""
    peak = config.learning_rate
    warmup = round(config.learning_rate_warmup_epochs * steps_per_epoch)
    if step < warmup:
        return peak * (step + 1) / warmup
    share = (step - warmup) / max(1, total_steps - warmup)
    if config.schedule == "cosine":
        return peak * (1 + math.cos(math.pi * share)) / 2
    if config.schedule == "polynomial":
        end = config.polynomial_end
        return end + (peak - end) * (1 - share) ** config.polynomial_power
    if config.schedule == "step":
        passed = sum(step >= epoch * steps_per_epoch for epoch in config.step_epochs)
        return peak * config.step_factor**passed
    return peak
