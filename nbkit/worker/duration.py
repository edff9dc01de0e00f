"""Number of steps of an attempt: as configured, or as many as its window takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from nbkit.config import ExperimentConfig
from nbkit.config.checks import WINDOW_SECONDS, WINDOW_SECONDS_MAX, WINDOW_STEPS
from nbkit.worker.step_clock import StepTimes

_FEWEST_STEPS = 3
"""However slow they are."""
_GROUP_STEPS = 5
_STABLE_SHARE = 0.05
"""Difference of the medians of two groups of steps that counts as none."""
_SETTLING_SECONDS = 1.0
"""A GPU raises its clocks in the first second."""


def is_stable(seconds: Sequence[float], warmup_steps: int) -> bool:
    """Return whether the warm-up is over, by the times of all steps so far."""
    # After ``warmup_steps``: once two consecutive groups of 5 steps have equal medians
    # within 5 %, a second after the first step (which compiles and allocates), or at
    # the latest when that has lasted as long as a window may.
    if len(seconds) < max(1, warmup_steps):
        return False
    settled = math.fsum(seconds[1:])
    if settled >= WINDOW_SECONDS_MAX:
        return True
    if len(seconds) <= 2 * _GROUP_STEPS or settled < _SETTLING_SECONDS:
        return False
    before = median(seconds[-2 * _GROUP_STEPS : -_GROUP_STEPS])
    newest = median(seconds[-_GROUP_STEPS:])
    return abs(newest - before) <= _STABLE_SHARE * before


def window_steps(num_steps: int, seconds: float) -> int:
    """Return how many steps a window has if so many steps took so long."""
    # At least 6 s and 20 steps; at most 30 s, but 3 steps.
    mean = max(seconds / num_steps, 1e-6)
    wanted = max(WINDOW_STEPS, math.ceil(WINDOW_SECONDS / mean))
    return max(_FEWEST_STEPS, min(wanted, math.floor(WINDOW_SECONDS_MAX / mean)))


class Duration:
    """When the window of measured steps opens, and after which step an attempt ends.

    With ``steps`` or ``epochs`` both are known at once. Otherwise rank 0 derives them
    from its step times, and its number reaches all ranks at the same step, with the
    flags of `StopAgreement`: no other collective, and no wait for a device.
    """

    def __init__(
        self,
        config: ExperimentConfig,
        steps_per_epoch: int,
        first_step: int = 0,
        profiled_steps: int = 0,
    ) -> None:
        self.total_steps: float = math.inf
        """Steps of the attempt; infinite if not known yet."""
        self.ended_by = "time"
        """Setting that ends the attempt: ``steps``, ``epochs`` or ``time``."""
        self.window_steps = 0
        """Window length that this rank proposes; 0 if none."""
        self._least_warmup = config.num_warmup_steps + profiled_steps
        self._warmup_seconds: list[float] = []
        self._measured_steps = 0
        self._measured_seconds = 0.0
        self._window_start: int | None = None
        if config.steps is not None:
            self.total_steps, self.ended_by = config.steps, "steps"
        elif config.epochs is not None:
            self.total_steps = config.epochs * steps_per_epoch
            self.ended_by = "epochs"
        self.scheduled_steps = self.total_steps
        """Steps of the learning rate schedule; infinite if time ends the attempt, so
        that losses do not depend on the speed."""
        if self.ended_by != "time":
            self._window_start = first_step + self._least_warmup

    @property
    def agreed_steps(self) -> int | None:
        """Last step if time ends the attempt and all ranks know it, else None."""
        is_known = self.ended_by == "time" and self.total_steps < math.inf
        return int(self.total_steps) if is_known else None

    def take(self, finished: Sequence[StepTimes]) -> None:
        """Note the times of finished steps; they matter on rank 0."""
        if self.ended_by != "time":
            return
        for times in finished:
            if self._window_start is None:
                known = self._warmup_seconds
                known.append(times.total_seconds)
                if is_stable(known, self._least_warmup):
                    newest = known[-_GROUP_STEPS:]
                    self.window_steps = window_steps(len(newest), sum(newest))
            elif times.step > self._window_start:
                self._measured_steps += 1
                self._measured_seconds += times.total_seconds
                counts = self._measured_steps, self._measured_seconds
                self.window_steps = window_steps(*counts)

    def opens_window(self, step: int, agreed_steps: int) -> bool:
        """Return whether the window opens after this step; called at each boundary."""
        if self.ended_by != "time":
            return step == self._window_start
        if not agreed_steps:
            return False
        opens = self._window_start is None
        if self._window_start is None:
            self._window_start = step
        # Not before the steps that are issued already.
        self.total_steps = max(step, self._window_start + agreed_steps)
        return opens
