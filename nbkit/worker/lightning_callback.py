"""Callback for Lightning's ``Trainer`` that shows and stops a run of unchanged code.

Lightning calls the functions below, which are entry points, for every ``Trainer``.
https://lightning.ai/docs/pytorch/stable/extensions/entry_points.html
"""

from __future__ import annotations

import importlib
import math
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nbkit.worker.batch_counts import BatchCounts
from nbkit.worker.rank_context import Context, Source
from nbkit.worker.trainer_callback import run_context


def lightning_callbacks() -> list[Any]:
    """Return the callback of a run, for the package ``lightning``."""
    return _callbacks("lightning.pytorch")


def pytorch_lightning_callbacks() -> list[Any]:
    """Return the callback of a run, for the package ``pytorch_lightning``."""
    return _callbacks("pytorch_lightning")


def _callbacks(package: str) -> list[Any]:
    run = run_context()
    if run is None:
        return []
    base = importlib.import_module(package).Callback
    return [type("RunCallback", (LightningLog, base), {})(run)]


class LightningLog:
    """Hooks of a callback: it logs every ``log_every_n_steps`` steps.

    When the run is stopped, it saves ``last.ckpt`` next to the other checkpoints, for
    ``trainer.fit(..., ckpt_path="last")``.
    """

    def __init__(self, run: Context) -> None:
        super().__init__()
        self._run = run
        self._counts = BatchCounts()
        self._seconds = 0.0
        self._mark: float | None = None
        self._step = self._asked_step = -1
        self._logged: dict[str, float] = {}
        self._loss: float | None = None
        self._total_steps: int | None = None
        self._device: Any = None
        self._shares_batches = False
        """Whether ranks get the same batches: their samples do not add up then."""

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Take over the run's numbers, and its requests to stop."""
        self._run.record_only(Source.LOG)
        steps = trainer.estimated_stepping_batches
        if not module.automatic_optimization:  # steps of each optimizer count
            steps = trainer.max_steps
        self._total_steps = int(steps) if 0 <= steps < math.inf else None
        self._device = module.device
        sampler = getattr(trainer.strategy, "distributed_sampler_kwargs", None) or {}
        num_ranks = self._run.world_size
        self._shares_batches = sampler.get("num_replicas", num_ranks) < num_ranks
        # Lightning's own handler ends each rank by itself, without a checkpoint.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._run.should_stop()

    def on_train_batch_start(
        self, trainer: Any, module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Stop with a checkpoint if the run is to stop."""
        self._mark = self._mark or time.perf_counter()
        if trainer.global_step == self._asked_step:
            return
        self._asked_step = trainer.global_step
        # Here, the batches that are done have been counted: later hooks come before
        # that. What follows is one step, which the resumed run does again.
        if self._run.should_stop():
            saves = trainer.checkpoint_callback
            folder = getattr(saves, "dirpath", None) or self._run.run_folder
            saved = Path(folder) / "last.ckpt"
            trainer.save_checkpoint(saved)
            for each in trainer.checkpoint_callbacks:
                each.save_last = None  # that would say that the epoch is over
            state = {"lightning_checkpoint": str(saved)}
            self._run.save_checkpoint(state, trainer.global_step)
            trainer.should_stop = True
            trainer.fit_loop.min_epochs = trainer.fit_loop.epoch_loop.min_steps = None

    def on_train_batch_end(
        self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count a batch, and log where Lightning does."""
        by_name = batch if isinstance(batch, Mapping) else {}
        given = by_name.values() or (
            batch if isinstance(batch, list | tuple) else [batch]
        )
        if not self._shares_batches:
            self._counts.add([by_name.get("input_ids"), *given], by_name)
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if loss is not None:
            # Lightning gives it divided by these.
            self._loss = loss.detach() * trainer.accumulate_grad_batches
        if trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        if self._step % trainer.log_every_n_steps == 0:
            self._log(trainer)

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        """Let the clock pause."""
        if self._mark is not None:
            self._seconds += time.perf_counter() - self._mark
            self._mark = None

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        """Log what was measured."""
        if not trainer.sanity_checking and (values := self._new_metrics(trainer)):
            self._run.log(
                values,
                trainer.global_step,
                total_steps=self._total_steps,
                beside_steps=trainer.state.fn != "fit",
            )

    def on_train_end(self, trainer: Any, module: Any) -> None:
        """Log the steps since the last line."""
        if self._loss is not None:
            self._log(trainer)
        # Lightning computes the last epoch's values after its validation.
        if values := self._new_metrics(trainer, with_equal=False):
            step = trainer.global_step
            self._run.log(values, step, total_steps=self._total_steps)

    def on_test_end(self, trainer: Any, module: Any) -> None:
        """Log what was tested, maybe by another trainer, which begins at step 0."""
        if values := self._new_metrics(trainer):
            step = max(trainer.global_step, self._run.step)
            self._run.log(values, step, beside_steps=True)

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint keeps; Lightning calls it on every rank."""
        if self._device is not None or self._run.world_size == 1:
            self._counts.gather(self._run.world_size, self._device)
        return {"seen": dict(self._counts.seen)}

    def on_exception(self, *_: Any) -> None:
        """Gather no more: other ranks may go on, or be gone."""
        self._device = None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self._counts.seen.update(state_dict["seen"])

    def _log(self, trainer: Any) -> None:
        now = time.perf_counter()
        seconds = self._seconds + now - (self._mark or now)
        self._seconds, self._mark = 0.0, now
        self._counts.gather(self._run.world_size, self._device)
        values = self._new_metrics(trainer)
        if self._loss is not None:
            values["loss"], self._loss = float(self._loss), None
        if trainer.optimizers:
            values["learning_rate"] = trainer.optimizers[0].param_groups[0]["lr"]
        values |= self._counts.take_rates(seconds)
        self._run.log(values, trainer.global_step, total_steps=self._total_steps)

    def _new_metrics(
        self, trainer: Any, *, with_equal: bool = True
    ) -> dict[str, float]:
        """Return what ``self.log`` was given since the last line."""
        # `callback_metrics` keeps all values: one that is equal may be old, or of now.
        now = _logged_now(trainer) if with_equal else set()
        metrics = {
            name: float(value) for name, value in trainer.callback_metrics.items()
        }
        new = {
            name: value
            for name, value in metrics.items()
            if name in now or self._logged.get(name) != value
        }
        self._logged = metrics
        return new


def _logged_now(trainer: Any) -> set[str]:
    """Return names of values that Lightning would give to its loggers here.

    Its `callback_metrics` lack those of several data loaders at their end.
    """
    results: Any = getattr(trainer, "_results", None)
    if not results:
        return set()
    on_step = trainer._logger_connector._first_loop_iter is not None
    names: set[str] = set()
    for metric in results.values():
        is_of_now = metric.meta.on_step if on_step else metric.meta.on_epoch
        if is_of_now and not metric.has_reset:
            names |= {*results._forked_name(metric, on_step)}
    return names
