"""`TrainerCallback`: a run of transformers' ``Trainer``, shown, stopped and resumed.

Nothing of transformers is imported: it calls the events of a callback by their names.
"""

from __future__ import annotations

import importlib.machinery
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from nbkit.errors import RunError
from nbkit.worker.rank_context import Context, context
from nbkit.worker.usage import peak_memory

if TYPE_CHECKING:
    import torch

_CHECKPOINT = "trainer_checkpoint"
_COUNTS = ("samples", "tokens", "padding")
_TRAINER = "transformers.trainer"


class TrainerLog:
    """Shows what ``Trainer`` logs; every ``Trainer`` of a run has it.

    It adds steps of how many, and ``samples_per_second`` since the line before, without
    evaluations and checkpoints.
    """

    is_followed = False
    """Whether a `TrainerCallback` of this process does it."""

    def __init__(self) -> None:
        self._context = _context()
        self._seconds = 0.0
        self._steps = 0
        self._mark: float | None = None
        self._rates: dict[str, float] = {}

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Take events that it has nothing to do with, of newer versions too."""
        if name.startswith("on_"):
            return lambda *_, **__: None
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        raise AttributeError(message)

    def on_train_begin(
        self, args: Any, state: Any, control: Any, *, model: Any, **kwargs: Any
    ) -> None:
        """Forget another training."""
        self._seconds, self._steps, self._mark = 0.0, 0, None

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Go on with the clock after a pause."""
        if self._mark is None:
            self._mark = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure for a line that is logged at this step: all ranks are here."""
        now = time.perf_counter()
        self._seconds += now - (self._mark or now)
        self._mark = now
        self._steps += 1
        self.on_epoch_end(args, state, control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure for a line that is logged at the end of an epoch."""
        if self._context is not None and control.should_log and self._seconds > 0:
            self._rates = self._measured(args, self._context.world_size)
            self._seconds, self._steps = 0.0, 0

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        """Let the clock pause."""
        self._mark = None

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Let the clock pause."""
        self._mark = None

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record what the trainer logs."""
        is_double = TrainerLog.is_followed and type(self) is TrainerLog
        if self._context is None or is_double:
            return
        values = {
            name: value
            for name, value in (logs or {}).items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        values |= self._rates
        self._rates = {}
        if values:
            steps = state.max_steps if state.max_steps > 0 else None
            self._context.log(values, state.global_step, total_steps=steps)

    def _measured(self, args: Any, world_size: int) -> dict[str, float]:
        """Return rates of all ranks, by full batches."""
        batches = self._steps * args.gradient_accumulation_steps * world_size
        return {"samples_per_second": batches * args.train_batch_size / self._seconds}


class TrainerCallback(TrainerLog):
    """Counts tokens of transformers' ``Trainer``, and lets it stop and resume.

    For ``Trainer`` and what is made of it, such as TRL's ``SFTTrainer``, in a script or
    function that `nbkit.launch` runs; elsewhere it does nothing. What ``Trainer`` logs
    is in ``run.metrics("log")`` and the live view without it, too. It adds, since the
    line before and without evaluations and checkpoints, ``tokens_per_second`` of all
    ranks without padding, whose share of all tokens is ``padding_share``; and
    ``peak_memory_bytes`` of rank 0's GPU. `Run.stop` saves a checkpoint at the next
    step, from which `Run.resume` continues.

    Examples
    --------
    >>> callback = nbkit.TrainerCallback()
    >>> trainer = Trainer(model, arguments, callbacks=[callback])  # doctest: +SKIP
    >>> trainer.train(resume_from_checkpoint=callback.checkpoint)  # doctest: +SKIP
    """

    def __init__(self) -> None:
        super().__init__()
        self._counted = _Counted()

    @property
    def checkpoint(self) -> str | None:
        """Folder of the newest checkpoint of this run; None in its first attempt."""
        if self._context is None or self._context.attempt == 0:
            return None
        state = self._context.load_checkpoint() or {}
        folder = state.get(_CHECKPOINT)
        return folder if folder and Path(folder).is_dir() else None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, *, model: Any, **kwargs: Any
    ) -> None:
        """Count what the model is given from now on."""
        super().on_train_begin(args, state, control, model=model)
        TrainerLog.is_followed = True
        # What a compiled model calls would be compiled with it, at every step again.
        if self._context is not None and not args.torch_compile:
            self._counted.follow(model)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop with a checkpoint if the run is to stop."""
        super().on_step_end(args, state, control)
        if self._context is not None and self._context.should_stop():
            control.should_save = control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the checkpoint, from which `Run.resume` continues."""
        super().on_save(args, state, control)
        if self._context is not None:
            step = state.global_step
            folder = Path(args.output_dir).absolute() / f"checkpoint-{step}"
            self._context.save_checkpoint({_CHECKPOINT: str(folder)}, step)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Let go of the model."""
        self._counted.leave()

    def _measured(self, args: Any, world_size: int) -> dict[str, float]:
        counts = self._counted.take(world_size)
        if not counts["samples"]:  # it is not followed
            return super()._measured(args, world_size)
        rates = {"samples_per_second": counts["samples"] / self._seconds}
        if counts["tokens"]:
            real = counts["tokens"] - counts["padding"]
            rates["tokens_per_second"] = real / self._seconds
            rates["padding_share"] = counts["padding"] / counts["tokens"]
        peak = self._counted.peak_memory_bytes()
        return rates if peak is None else {**rates, "peak_memory_bytes": peak}


def show_trainers() -> None:
    """Let every ``Trainer`` of this process have a `TrainerLog` once it is imported."""
    sys.meta_path.insert(0, _TrainerFinder())


class _TrainerFinder(MetaPathFinder):
    """Finds transformers' trainer as Python does, and adds to its callbacks."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how the module is loaded; None for any other."""
        if fullname != _TRAINER:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_add(module: ModuleType) -> None:
            load(module)
            # Another version may have no such list: then it is not shown.
            with suppress(AttributeError):
                module.DEFAULT_CALLBACKS.append(TrainerLog)

        with suppress(AttributeError):  # a loader that cannot be changed
            spec.loader.exec_module = load_and_add  # type: ignore[method-assign]
        return spec


class _Counted:
    """What a model was given in training on this rank."""

    def __init__(self) -> None:
        self._numbers = dict.fromkeys(_COUNTS, 0)
        self._padding: torch.Tensor | None = None
        """On the model's device: to read it at every step would make it wait."""
        self._device: torch.device | None = None
        self._hook: Any = None

    def follow(self, model: torch.nn.Module) -> None:
        """Count what a model is called with."""
        self.leave()
        self._device = next((it.device for it in model.parameters()), None)
        self._hook = model.register_forward_pre_hook(self._count, with_kwargs=True)

    def leave(self) -> None:
        """Stop counting."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def take(self, world_size: int) -> dict[str, float]:
        """Return the counts of all ranks since the last call; every rank calls it."""
        import torch

        padding = 0 if self._padding is None else int(self._padding)
        mine = [*self._numbers.values()]
        mine[-1] += padding
        self._numbers, self._padding = dict.fromkeys(_COUNTS, 0), None
        dist = torch.distributed
        if world_size > 1 and dist.is_available() and dist.is_initialized():
            total = torch.tensor(mine, dtype=torch.int64, device=self._device)
            dist.all_reduce(total)
            mine = total.tolist()
        return dict(zip(_COUNTS, mine, strict=True))

    def peak_memory_bytes(self) -> int | None:
        """Return the largest memory of the model's GPU so far; None on a CPU."""
        device = self._device
        return None if device is None else peak_memory(device)[_PEAK]

    def _count(
        self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if not model.training:
            return
        tokens, mask = kwargs.get("input_ids"), kwargs.get("attention_mask")
        given = [tokens, *args, *kwargs.values()]
        first = next((it for it in given if hasattr(it, "shape") and it.ndim), None)
        self._numbers["samples"] += 0 if first is None else int(first.shape[0])
        if tokens is None:
            return
        self._numbers["tokens"] += tokens.numel()
        # Of another shape, it is no mask of padding.
        if mask is not None and mask.shape == tokens.shape:
            padding = mask.numel() - mask.detach().count_nonzero()
            self._padding = (
                padding if self._padding is None else self._padding + padding
            )


_PEAK = "peak_memory_allocated_bytes"


def _context() -> Context | None:
    try:
        return context()
    except RunError:
        return None
