"""Counts of a rank, and rank 0's ``metrics.jsonl`` and TensorBoard files."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nbkit import clock
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError
from nbkit.reading import retry_io
from nbkit.statistics import images_per_second
from nbkit.store.metrics import JsonLinesWriter
from nbkit.store.progress import RATE_STEPS
from nbkit.worker import rank_context as context
from nbkit.worker.rank import Rank
from nbkit.worker.step_clock import StepTimes
from nbkit.worker.tensorboard import TensorBoard
from nbkit.worker.usage import cpu_queue_seconds, cpu_seconds, host_cpu_seconds

_OWN = {"images_per_second", "loss"}
"""Names of numbers that readers find in the lines of the steps."""


@dataclass
class MeasuredCounts:
    """Raw counts of one rank over the steps after warm-up."""

    steps: int = 0
    step_time_seconds: float = 0.0
    data_wait_seconds: float = 0.0
    compute_seconds: float = 0.0
    communication_exposed_seconds: float = 0.0
    images: int = 0
    cpu_seconds: float = 0.0
    cpu_queue_seconds: float | None = None
    """Time that the training thread was runnable and waited for a CPU."""
    host_cpu_seconds: float = 0.0
    """Busy time of all CPUs of the host meanwhile, with any work."""
    counted_seconds: float = 0.0
    """Wall time during which CPU time was counted."""
    _host_start: float = field(default=0.0, repr=False)
    _clock_start: float = field(default=0.0, repr=False)
    _cpu_start: float | None = field(default=None, repr=False)
    _queue_start: float | None = field(default=None, repr=False)

    def open(self) -> None:
        """Start counting CPU time: the next step to be issued is the window's first."""
        self._cpu_start, self._queue_start = cpu_seconds(), cpu_queue_seconds()
        self._host_start, self._clock_start = host_cpu_seconds(), time.monotonic()

    def close(self) -> None:
        """Stop counting CPU time."""
        if self._cpu_start is not None:
            self.host_cpu_seconds += host_cpu_seconds() - self._host_start
            self.counted_seconds += time.monotonic() - self._clock_start
            self.cpu_seconds += cpu_seconds() - self._cpu_start
            self._cpu_start = None
        if self._queue_start is not None:
            waited = (cpu_queue_seconds() or self._queue_start) - self._queue_start
            self.cpu_queue_seconds = (self.cpu_queue_seconds or 0.0) + waited
            self._queue_start = None

    @contextlib.contextmanager
    def without_this_thread(self) -> Iterator[None]:
        """Leave out what this thread does, such as a checkpoint."""
        began, queued = time.thread_time(), cpu_queue_seconds()
        yield
        if self._cpu_start is not None:
            self.cpu_seconds -= time.thread_time() - began
        if self._queue_start is not None and queued is not None:
            self._queue_start += (cpu_queue_seconds() or queued) - queued

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out what every process of this rank does, such as an evaluation."""
        was_open = self._cpu_start is not None
        self.close()
        yield
        if was_open:
            self.open()

    def add(self, times: StepTimes, images: int) -> None:
        """Count one step of this rank's images."""
        self.steps += 1
        self.images += images
        self.step_time_seconds += times.total_seconds
        self.data_wait_seconds += times.data_wait_seconds
        self.compute_seconds += times.compute_seconds
        self.communication_exposed_seconds += times.communication_exposed_seconds

    def to_dict(self) -> dict[str, Any]:
        """Return the sums as JSON values."""
        return {name: value for name, value in vars(self).items() if name[0] != "_"}


class MetricsLog:
    """Counts finished steps on every rank; on rank 0 it writes them too."""

    def __init__(
        self,
        rank: Rank,
        config: ExperimentConfig,
        images_per_step: int,
        profiled_steps: int = 0,
    ) -> None:
        self.window = MeasuredCounts()
        self.is_muted = False
        """Whether a plug-in's metrics are dropped, as in unmeasured passes."""
        self._rank = rank
        self._config = config
        self._images = images_per_step
        self.total_steps: int | None = None
        """Steps of the attempt, if only its lines record them."""
        last = config.num_warmup_steps + profiled_steps
        self._profiled = range(config.num_warmup_steps + 1, last + 1)
        self._unmeasured = math.inf if config.has_time_window else last
        self._steps = 0
        self._writer = JsonLinesWriter(rank.paths.metrics) if rank.rank == 0 else None
        # Imported in the first step or after it: the warm-up drops that second.
        is_writer = rank.rank == 0 and config.tensorboard
        self._tensorboard = TensorBoard(rank) if is_writer else None
        self._newest: deque[dict[str, Any]] = deque(maxlen=RATE_STEPS)
        self._pid = os.getpid()
        context.log_with(self.log)

    def log(self, values: Mapping[str, float], step: int | None = None) -> None:
        """Write a plug-in's metrics next to those of the steps; see `nbkit.log`."""
        context.refuse_in_child(self._pid, self._rank.rank)
        if self.is_muted:
            return
        numbers = context.numbers(values)
        if taken := sorted(_OWN & numbers.keys()):
            message = (
                f"nbkit.log({{{taken[0]!r}: ...}}): task={self._config.task!r} logs "
                "this name itself. Use another name."
            )
            raise ConfigError(message)
        step = self._rank.step if step is None else context.whole_step(step)
        line = {"kind": "log", "attempt": self._rank.attempt, "step": step}
        # Readers take step, loss and rate from the lines of the steps then.
        line |= {"t": clock.now(), "values": numbers, "beside_steps": True}
        self._write([line])
        if self._tensorboard is not None:
            self._tensorboard.write(numbers, step, beside_steps=True)

    def open_window(self, issued: int) -> None:
        """Measure the steps after this number of steps of the attempt."""
        self._unmeasured = issued
        self.window.open()

    def steps(self, finished: list[StepTimes]) -> None:
        """Count and write finished steps."""
        lines: list[dict[str, Any]] = []
        for times in finished:
            self._steps += 1
            warmup = self._steps <= self._unmeasured
            if not warmup:
                self.window.add(times, self._images // self._rank.world_size)
            line = self._line(times, warmup=warmup)
            if self._steps in self._profiled:
                line["profiled"] = True
            lines.append(line)
        self._write(lines)
        if self._tensorboard is not None:
            for line in lines:
                self._newest.append(line)
                self._tensorboard.write(_scalars(self._newest), line["step"])

    def event(self, kind: str, step: int, **values: Any) -> None:
        """Write an evaluation, a checkpoint or another measurement."""
        line = {"kind": kind, "attempt": self._rank.attempt, "step": step}
        self._write([{**line, "t": clock.now(), **values}])
        if kind == "evaluation" and self._tensorboard is not None:
            names = ("top1_accuracy", "mean_auroc", "loss")
            scores = {f"evaluation/{name}": values.get(name) for name in names}
            self._tensorboard.write(scores, step, beside_steps=True)

    def close(self) -> None:
        """Flush the files to disk."""
        self.window.close()
        if self._writer is not None:
            self._writer.sync()
            self._writer.close()
        if self._tensorboard is not None:
            self._tensorboard.close()

    def _line(self, times: StepTimes, *, warmup: bool) -> dict[str, Any]:
        line = {
            "kind": "step",
            "attempt": self._rank.attempt,
            "epoch": times.epoch,
            "step": times.step,
            "t": times.ended_at,
            "loss": times.loss,
            "learning_rate": times.learning_rate,
            "images": self._images,
            "step_time_seconds": times.total_seconds,
            "data_wait_seconds": times.data_wait_seconds,
            "compute_seconds": times.compute_seconds,
            "communication_exposed_seconds": times.communication_exposed_seconds,
            "update_seconds": times.update_seconds,
            "warmup": warmup,
        }
        if self.total_steps is not None:
            line["total_steps"] = self.total_steps
        if times.loss_scale is not None:
            line |= {
                "loss_scale": times.loss_scale,
                "update_skipped": times.update_skipped,
            }
        return line

    def _write(self, lines: list[dict[str, Any]]) -> None:
        if (writer := self._writer) is not None:
            retry_io(lambda: writer.write(*lines))


def _scalars(newest: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return what TensorBoard shows of a step; its rate is that of the newest steps."""
    line = newest[-1]
    # TensorBoard smooths, and a mean of step rates is above images over time.
    alike = [step for step in newest if step["warmup"] == line["warmup"]]
    return {
        "train/loss": line["loss"],
        "train/images_per_second": images_per_second(alike),
        "train/learning_rate": line["learning_rate"],
        "train/data_wait_seconds": line["data_wait_seconds"],
    }
