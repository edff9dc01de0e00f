"""Time of each part of a step, without synchronizing the device.

A step lasts from the end of the step before to its own end, so that nothing falls
between two steps. It is divided at marks:

- *data wait*: from asking for a batch until it is there;
- *exposed communication*: from the moment the last gradients are computed (the last
  bucket is ready to be exchanged) until the exchange is over;
- *compute*: the rest; the *update* of the weights is the part of it after the
  exchange.

On a GPU a mark is a CUDA event in the stream of the computation: the time between two
marks includes what the device waited for, and nothing waits to read it. A step is read
once its last event has passed. On a CPU a mark is the clock.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from nbkit import clock


@dataclass(frozen=True)
class StepTimes:
    """One finished step."""

    step: int
    epoch: int
    loss: float | None
    """Mean loss of this rank's images, before the update; None without a model."""
    learning_rate: float | None
    total_seconds: float
    data_wait_seconds: float
    communication_exposed_seconds: float
    update_seconds: float
    """Time from the end of the gradient exchange to the end of the step; part of the
    compute time, and independent of the number of images."""
    ended_at: float
    """Unix time at which the end of the step was detected."""
    loss_scale: float | None = None
    """Loss scale of this step; None if the loss is not scaled."""
    update_skipped: bool | None = None
    """Whether the update was skipped, because a gradient was not finite; None if the
    loss is not scaled."""
    weights_finite: bool | None = None
    """Whether every weight is finite after this step; None if not checked."""

    @property
    def compute_seconds(self) -> float:
        """Step time without data wait and exposed communication."""
        waits = self.data_wait_seconds + self.communication_exposed_seconds
        return max(0.0, self.total_seconds - waits)


@dataclass
class _Marks:
    step: int
    epoch: int
    start: Any
    learning_rate: float | None = None
    waits: list[tuple[Any, Any]] = field(default_factory=list)
    last_bucket: Any = None
    backward_end: Any = None
    end: Any = None
    loss: torch.Tensor | None = None
    loss_scales: torch.Tensor | None = None
    overflow: torch.Tensor | None = None


class StepClock:
    """Marks of the current step, and the steps whose times are known."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._mark: Callable[[], Any] = _event if self._on_gpu else time.perf_counter
        self._pending: deque[_Marks] = deque()
        self._current = _Marks(0, 0, None)
        self._wait_start: Any = None

    def restart(self) -> None:
        """Begin the next step here: what came before (an evaluation) is not a step."""
        self._current = _Marks(0, 0, self._mark())

    def begin(self, step: int, epoch: int) -> None:
        """Begin a step where the one before ended."""
        start = self._current.start if self._current.end is None else self._current.end
        self._current = _Marks(step, epoch, start)

    def ask_for_batch(self) -> None:
        """Mark that the loop now wants a batch."""
        self._wait_start = self._mark()

    def got_batch(self) -> None:
        """Mark that the batch is there."""
        self._current.waits.append((self._wait_start, self._mark()))

    def last_bucket_ready(self) -> None:
        """Mark that every gradient is computed; called from DDP's hook."""
        self._current.last_bucket = self._mark()

    def backward_done(self) -> None:
        """Mark that backward and gradient exchange are over."""
        self._current.backward_end = self._mark()

    def end(
        self,
        loss: torch.Tensor | None = None,
        learning_rate: float | None = None,
        loss_scales: torch.Tensor | None = None,
        overflow: torch.Tensor | None = None,
    ) -> None:
        """End the step."""
        marks = self._current
        marks.learning_rate = learning_rate
        marks.loss = self._to_host(loss)
        marks.loss_scales = self._to_host(loss_scales)
        marks.overflow = self._to_host(overflow)
        marks.end = self._mark()
        self._pending.append(marks)

    def finished(self, *, wait: bool = False) -> list[StepTimes]:
        """Return the steps whose times are known by now, oldest first."""
        done: list[StepTimes] = []
        while self._pending:
            end = self._pending[0].end
            if self._on_gpu and not end.query():
                if not wait:
                    break
                end.synchronize()
            done.append(self._read(self._pending.popleft()))
        return done

    def _read(self, marks: _Marks) -> StepTimes:
        exposed = 0.0
        if marks.last_bucket is not None:
            exposed = self._seconds(marks.last_bucket, marks.backward_end)
        scale, skipped = _scaling(marks.loss_scales)
        return StepTimes(
            step=marks.step,
            epoch=marks.epoch,
            loss=None if marks.loss is None else float(marks.loss),
            learning_rate=marks.learning_rate,
            total_seconds=self._seconds(marks.start, marks.end),
            data_wait_seconds=sum(self._seconds(*pair) for pair in marks.waits),
            communication_exposed_seconds=max(0.0, exposed),
            update_seconds=self._seconds(marks.backward_end, marks.end),
            ended_at=clock.now(),
            loss_scale=scale,
            update_skipped=skipped,
            weights_finite=None if marks.overflow is None else not bool(marks.overflow),
        )

    def _to_host(self, values: torch.Tensor | None) -> torch.Tensor | None:
        if values is None or not self._on_gpu:
            return values
        # The copy to page-locked memory goes on; the step's end event covers it.
        host = torch.empty(values.shape, dtype=torch.float32, pin_memory=True)
        return host.copy_(values.detach().float(), non_blocking=True)

    def _seconds(self, start: Any, end: Any) -> float:
        return start.elapsed_time(end) / 1e3 if self._on_gpu else end - start


def _event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _scaling(scales: torch.Tensor | None) -> tuple[float | None, bool | None]:
    """Return the loss scale of a step, and whether the step was skipped."""
    if scales is None:
        return None, None
    this, following = scales.tolist()
    # The scale of a model that overflows in every step is halved down to 0.
    return this, following < this or this == 0
