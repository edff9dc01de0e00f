"""Detection of NaN and Inf in training, without synchronizing the device."""

# torch has no public name for the kernel with which GradScaler looks at gradients.
# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from nbkit.config import ExperimentConfig
from nbkit.errors import NonFiniteError
from nbkit.store.nonfinite import NonFinite
from nbkit.worker.step_clock import StepTimes

PERIOD_STEPS = 25
"""Weights are checked after so many steps: a check reads each of them once, as an
update does several times, so that it takes less than 1 % of the updates' time."""
_OF_THE_KERNEL = {torch.float16, torch.float32, torch.float64}
"""Older versions of torch have GradScaler's kernel for these alone."""
_PLAIN_SCALE = 1.0
"""At this loss scale gradients are what they are without one."""


class FiniteWatch:
    """Finds the first step at which loss, gradients or weights are not finite.

    The loss of every step says so by itself, and with it most of what weights may hold:
    a weight that is not finite stays so (IEEE 754), and makes the next loss so unless
    the model hides it (a maximum, a unit that is off). What is hidden is found by the
    checks of the weights. If the loss is not scaled, gradients are not checked: it
    may follow from those of the step before, so that the finding names both steps. A
    step that GradScaler skips leaves the weights as they were: its gradients count only
    where the scale has come down to 1. Running statistics count as weights.
    """

    def __init__(self, model: nn.Module) -> None:
        self.nonfinite: NonFinite | None = None
        """First non-finite value on this rank; None while all are finite."""
        self._weights = _weights(model)
        self._finite_until = 0

    def resume(self, step: int, nonfinite: dict[str, Any] | None) -> None:
        """Continue after a checkpoint: its step, and what was found until then."""
        self._finite_until, self.nonfinite = step, NonFinite.from_dict(nonfinite)

    def look(self, step: int) -> torch.Tensor | None:
        """Return 1 if a weight is not finite after a step, else 0; None if not due."""
        # A scalar on the device: `nbkit.worker.step_clock.StepClock.end` takes it to
        # the host.
        return _overflow(self._weights) if step % PERIOD_STEPS == 0 else None

    def look_now(self, step: int) -> bool:
        """Return whether every weight is finite after a step; waits for the device."""
        finite = not bool(_overflow(self._weights))
        self._note_weights(step, finite=finite)
        return finite

    def read(self, steps: Iterable[StepTimes]) -> None:
        """Check the results of finished steps, oldest first."""
        for times in steps:
            if times.loss is not None and not math.isfinite(times.loss):
                # Where gradients are not checked, those of the step before may have
                # broken the weights that this loss follows from.
                before = times.step - 1
                looked = times.loss_scale is not None or self._finite_until == before
                after_step = None if looked else before - 1
                self._note(NonFinite("loss", times.step, after_step))
            elif times.update_skipped and (times.loss_scale or 0.0) <= _PLAIN_SCALE:
                self._note(NonFinite("gradients", times.step))
            elif times.weights_finite is not None:
                self._note_weights(times.step, finite=times.weights_finite)

    def note_evaluation(self, step: int, loss: float) -> None:
        """Check the loss of an evaluation after a step."""
        if not math.isfinite(loss):
            self._note(NonFinite("evaluation loss", step))

    def agree(self, group: dist.ProcessGroup | None) -> NonFinite | None:
        """Return the first non-finite value of all ranks; called by all ranks."""
        if group is not None:
            ranks: list[NonFinite | None] = [None] * dist.get_world_size(group)
            dist.all_gather_object(ranks, self.nonfinite, group=group)
            detected = filter(None, ranks)
            self.nonfinite = min(
                detected, key=operator.attrgetter("step"), default=None
            )
        return self.nonfinite

    def error(self, config: ExperimentConfig) -> NonFiniteError:
        """Return the error that ends a run with stop_on_nonfinite."""
        instead = ", precision='bf16'" if config.precision == "fp16" else ""
        message = (
            f"{self.nonfinite}, with stop_on_nonfinite=True. Launch the run again with "
            f"a learning_rate below {config.learning_rate:g}{instead}, or "
            "stop_on_nonfinite=False. The run's checkpoints are finite."
        )
        return NonFiniteError(message)

    def _note_weights(self, step: int, *, finite: bool) -> None:
        if finite:
            self._finite_until = step
        else:
            exact = self._finite_until == step - 1
            self._note(
                NonFinite("weights", step, None if exact else self._finite_until)
            )

    def _note(self, nonfinite: NonFinite) -> None:
        if self.nonfinite is None:
            self.nonfinite = nonfinite


def _weights(model: nn.Module) -> list[list[torch.Tensor]]:
    # By number format, for one kernel. Other buffers may hold infinity, as masks do.
    running = (
        getattr(module, name)
        for module in model.modules()
        if isinstance(module, nn.modules.batchnorm._NormBase)
        for name in ("running_mean", "running_var")
        if getattr(module, name) is not None
    )
    groups: dict[torch.dtype, list[torch.Tensor]] = {}
    for weight in chain(model.parameters(), running):
        if weight.is_floating_point() and weight.numel():
            groups.setdefault(weight.dtype, []).append(weight.detach())
    return list(groups.values())


def _overflow(groups: list[list[torch.Tensor]]) -> torch.Tensor:
    """Return 1 if a weight is not finite, else 0: a scalar on their device."""
    # This is what GradScaler looks at gradients with: many tensors in one kernel. It
    # multiplies them by a scale as it reads them, here by 1, which changes no number.
    found_inf = torch.zeros((), device=groups[0][0].device if groups else None)
    scale = torch.ones_like(found_inf)
    for weights in groups:
        if weights[0].dtype in _OF_THE_KERNEL:
            torch._amp_foreach_non_finite_check_and_unscale_(weights, found_inf, scale)
        else:
            finite = torch.stack([weight.isfinite().all() for weight in weights]).all()
            found_inf = torch.where(finite, found_inf, scale)
    return found_inf
