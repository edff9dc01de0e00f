"""The learning rate of every step, as a pure function."""

from __future__ import annotations

import math

from nbkit.config import ExperimentConfig

__all__ = ["learning_rate"]


def learning_rate(
    config: ExperimentConfig, step: int, steps_per_epoch: int, total_steps: int
) -> float:
    """Return the learning rate of an optimizer step.

    Parameters
    ----------
    config
        Peak, schedule and warm-up.
    step
        Number of the step, counted from 0.
    steps_per_epoch
        Optimizer steps of one epoch.
    total_steps
        Optimizer steps of the whole run.

    Returns
    -------
    float
        Rising linearly to the peak over the warm-up, then after the schedule:
        ``cosine`` is ``(1 + cos(pi t)) / 2`` of the peak, and ``polynomial`` is
        ``(1 - t) ** power`` of the way from its end to the peak, with ``t`` the share
        of the steps after the warm-up.
    """
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
