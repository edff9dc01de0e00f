"""`TrainerCallback`: a run of transformers' ``Trainer``, shown, stopped and resumed.

Nothing of transformers is imported: it calls the events of a callback by their names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbkit.errors import RunError
from nbkit.worker.rank_context import Context, context
from nbkit.worker.usage import peak_memory

if TYPE_CHECKING:
    import torch

_CHECKPOINT = "trainer_checkpoint"
_COUNTS = ("samples", "tokens", "padding")


class TrainerCallback:
    """Shows a run of transformers' ``Trainer``, and lets it stop and resume.

    For ``Trainer`` and what is made of it, such as TRL's ``SFTTrainer``, in a script or
    function that `nbkit.launch` runs; elsewhere it does nothing. All that ``Trainer``
    logs is in ``run.metrics("log")`` and the live view, with ``samples_per_second``
    and, for a model of ``input_ids``, ``tokens_per_second`` of all ranks: without
    padding, whose share of all tokens is ``padding_share``. They are those since the
    line before, without evaluations and checkpoints, and ``peak_memory_bytes`` is that
    of rank 0's GPU. `Run.stop` saves a checkpoint at the next step.

    Examples
    --------
    >>> callback = nbkit.TrainerCallback()
    >>> trainer = Trainer(model, arguments, callbacks=[callback])  # doctest: +SKIP
    >>> trainer.train(resume_from_checkpoint=callback.checkpoint)  # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._context = _context()
        self._counted = _Counted()
        self._seconds = 0.0
        self._mark: float | None = None
        self._rates: dict[str, float] = {}

    @property
    def checkpoint(self) -> str | None:
        """Folder of the newest checkpoint of this run; None in its first attempt."""
        if self._context is None or self._context.attempt == 0:
            return None
        state = self._context.load_checkpoint() or {}
        folder = state.get(_CHECKPOINT)
        return folder if folder and Path(folder).is_dir() else None

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Take events that it has nothing to do with, of newer versions too."""
        if name.startswith("on_"):
            return lambda *_, **__: None
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        raise AttributeError(message)

    def on_train_begin(
        self, args: Any, state: Any, control: Any, **kwargs: Any
    ) -> None:
        """Count what the model is given from now on."""
        self._mark = None
        # What a compiled model calls would be compiled with it, at every step again.
        if self._context is not None and not args.torch_compile:
            self._counted.follow(kwargs["model"])

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Go on with the clock after a pause."""
        if self._mark is None:
            self._mark = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop with a checkpoint if the run is to stop."""
        if self._context is None:
            return
        now = time.perf_counter()
        self._seconds += now - (self._mark or now)
        self._mark = now
        # All ranks are here, which is not said of who logs.
        if control.should_log:
            self._measure()
        if self._context.should_stop():
            control.should_save = control.should_training_stop = True

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure for a line that is logged at the end of an epoch."""
        if self._context is not None and control.should_log:
            self._measure()

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        """Let the clock pause."""
        self._mark = None

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the checkpoint, from which `Run.resume` continues."""
        self._mark = None
        if self._context is not None:
            folder = (
                Path(args.output_dir).absolute() / f"checkpoint-{state.global_step}"
            )
            self._context.save_checkpoint({_CHECKPOINT: str(folder)}, state.global_step)

    def on_log(
        self,
        args: Any,
        state: Any,
        control: Any,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record what the trainer logs."""
        if self._context is None:
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

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Let go of the model."""
        self._counted.leave()

    def _measure(self) -> None:
        assert self._context is not None
        counts = self._counted.take(self._context.world_size)
        seconds, self._seconds = self._seconds, 0.0
        if seconds > 0 and counts["samples"]:
            self._rates["samples_per_second"] = counts["samples"] / seconds
        if seconds > 0 and counts["tokens"]:
            real = counts["tokens"] - counts["padding"]
            self._rates["tokens_per_second"] = real / seconds
            self._rates["padding_share"] = counts["padding"] / counts["tokens"]
        peak = self._counted.peak_memory_bytes()
        if peak is not None:
            self._rates["peak_memory_bytes"] = peak


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
