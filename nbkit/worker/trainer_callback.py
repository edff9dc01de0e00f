"""`TrainerCallback` for transformers' ``Trainer``: display, stop and resumption.

Nothing of transformers is imported: it calls the events of a callback by their names.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from nbkit.errors import RunError
from nbkit.review.gpu_peaks import gpu_peaks
from nbkit.worker.batch_counts import BatchCounts
from nbkit.worker.facts import is_tf32
from nbkit.worker.model_flops import ModelFlops
from nbkit.worker.rank_context import Context, Source, context
from nbkit.worker.usage import peak_memory

if TYPE_CHECKING:
    import torch

_CHECKPOINT, _SEEN = "trainer_checkpoint", "seen"
_PEAK_MEMORY = "peak_memory_allocated_bytes"
_FOLLOWED = "is_followed_by_nbkit"


class TrainerLog:
    """Records what ``Trainer`` logs; every ``Trainer`` of a run has it.

    It adds the total number of steps, and ``samples_per_second`` since the previous
    line, without evaluations and checkpoints.
    """

    def __init__(self) -> None:
        self._context = run_context()
        self._seconds = 0.0
        self._batches = 0
        self._mark: float | None = None
        self._rates: dict[str, float] = {}
        self._shares_batches = False
        """Whether ranks get the same batches: their samples do not add up then."""

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
        self._shares_batches = _shares_batches(args, model)
        if self._context is not None:
            self._context.record_only(Source.LOG)
        self._seconds, self._batches, self._mark = 0.0, 0, None

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Go on with the clock after a pause."""
        if self._mark is None:
            self._mark = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure for a line that is logged at this step: all ranks are here."""
        now = time.perf_counter()
        self._seconds += now - (self._mark or now)
        self._mark = now
        self._batches += 1
        self.on_epoch_end(args, state, control)

    def on_substep_end(self, *_: Any, **__: Any) -> None:
        """Count a batch without an update: an epoch's last update may have fewer."""
        self._batches += 1

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure for a line that is logged at the end of an epoch."""
        if self._context is not None and control.should_log and self._seconds > 0:
            # A search for the batch size changes that of the state alone.
            size = getattr(state, "train_batch_size", None) or args.train_batch_size
            options = getattr(args, "accelerator_config", None)
            if getattr(options, "split_batches", False):
                size /= self._context.world_size
            self._rates = self._measured(size, self._context.world_size)
            self._seconds, self._batches = 0.0, 0

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
        # A `TrainerCallback` of the same trainer has marked its state.
        is_double = type(self) is TrainerLog and getattr(state, _FOLLOWED, False)
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
            self._context.log(
                values,
                state.global_step,
                total_steps=steps,
                # An evaluation before the training is at step 0: it may be resumed.
                beside_steps=steps is None,
            )

    def _measured(self, batch_size: float, world_size: int) -> dict[str, float]:
        """Return rates of all ranks, by full batches."""
        if self._shares_batches:
            return {}
        samples = self._batches * batch_size * world_size
        return {"samples_per_second": samples / self._seconds}


class TrainerCallback(TrainerLog):
    """Callback for transformers' ``Trainer``: token counts, stop and resume.

    For ``Trainer`` and its subclasses, such as TRL's ``SFTTrainer``, in a script or
    function that `nbkit.launch` runs; elsewhere it does nothing. The metrics that
    ``Trainer`` logs are in ``run.metrics("log")`` and the live view even without the
    callback. To each logged line it adds ``tokens_per_second`` of all ranks since
    the previous line (without padding, evaluations and checkpoints); ``padding_share``,
    the share of padding in all tokens; the totals ``tokens_seen`` and ``samples_seen``;
    ``peak_memory_bytes`` of rank 0's GPU; and ``mfu``, the share of the GPUs' dense
    peak FLOP/s by torchtitan's formula (if it is unknown, rank 0 prints the reason).
    `Run.stop` saves a checkpoint at the next step, from which `Run.resume` continues.

    Examples
    --------
    >>> callback = nbkit.TrainerCallback()
    >>> trainer = Trainer(model, arguments, callbacks=[callback])  # doctest: +SKIP
    >>> trainer.train(resume_from_checkpoint=callback.checkpoint)  # doctest: +SKIP
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts = BatchCounts()
        self._device: torch.device | None = None
        self._flops: ModelFlops | str | None = None
        """Or why they are not known."""
        self._peak: float | str = "not yet known"
        """FLOP/s of a GPU, or why it is not known."""
        self._hook: Any = None

    def on_init_end(
        self, args: Any, state: Any, control: Any, *, model: Any, **kwargs: Any
    ) -> None:
        """Count the weights before they are sharded."""
        setattr(state, _FOLLOWED, True)
        self._flops = _flops(model)

    @property
    def checkpoint(self) -> str | None:
        """Folder of this run's newest checkpoint; None if there is none to resume."""
        if self._context is None or self._context.attempt == 0:
            return None
        state = self._context.load_checkpoint() or {}
        folder = state.get(_CHECKPOINT)
        if not folder or not Path(folder).is_dir():
            return None
        self._counts.seen.update(state[_SEEN])
        return folder

    def on_train_begin(
        self, args: Any, state: Any, control: Any, *, model: Any, **kwargs: Any
    ) -> None:
        """Count what the model is given from now on."""
        super().on_train_begin(args, state, control, model=model)
        setattr(state, _FOLLOWED, True)  # a resumed trainer has a new one
        self.on_train_end()
        if self._context is None:
            return
        self._device = next((weight.device for weight in model.parameters()), None)
        self._counts.gather(self._context.world_size, self._device)
        self._counts.take_rates(1.0)  # of another training's last steps
        self._flops = self._flops or _flops(model)
        self._peak = _peak(args, model, self._device)
        reasons = [text for text in (self._peak, self._flops) if isinstance(text, str)]
        # What a compiled model calls would be compiled with it, at every step again.
        if self._shares_batches:
            reasons.insert(
                0, "ranks share batches (tensor, context or sequence parallel)"
            )
        elif args.torch_compile:
            reasons.insert(0, "tokens are not counted with torch_compile")
        else:
            self._hook = model.register_forward_pre_hook(self._count, with_kwargs=True)
        if reasons and self._context.rank == 0:
            sys.stderr.write(f"nbkit: MFU is unknown: {reasons[0]}.\n")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop with a checkpoint if the run is to stop."""
        super().on_step_end(args, state, control)
        if self._context is not None and self._context.should_stop():
            control.should_save = control.should_training_stop = True
            args.save_total_limit = None  # a limit of 1 keeps the best one alone

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Note the checkpoint, from which `Run.resume` continues."""
        super().on_save(args, state, control)
        if self._context is not None:
            step = state.global_step
            folder = Path(args.output_dir).absolute() / f"checkpoint-{step}"
            self._counts.gather(self._context.world_size, self._device)
            state = {_CHECKPOINT: str(folder), _SEEN: self._counts.seen}
            self._context.save_checkpoint(state, step)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Let go of the model."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _measured(self, batch_size: float, world_size: int) -> dict[str, float]:
        self._counts.gather(world_size, self._device)
        rates = self._counts.take_rates(self._seconds)
        if not rates:  # it is not followed
            return super()._measured(batch_size, world_size)
        rate, peak, flops = rates.get("tokens_per_second"), self._peak, self._flops
        if rate and isinstance(peak, float) and isinstance(flops, ModelFlops):
            length = rate / rates["samples_per_second"]
            rates["mfu"] = flops.per_token(length) * rate / (peak * world_size)
        memory = self._device and peak_memory(self._device)[_PEAK_MEMORY]
        return rates if memory is None else {**rates, "peak_memory_bytes": memory}

    def _count(
        self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        # A reference model of TRL is this one in training mode, without gradients.
        if model.training and sys.modules["torch"].is_grad_enabled():
            tokens = kwargs.get("input_ids")
            self._counts.add([tokens, *args, *kwargs.values()], kwargs)


def follow_trainers(trainer: ModuleType) -> None:
    """Let every ``Trainer`` of transformers' module have a `TrainerLog`."""
    trainer.DEFAULT_CALLBACKS.append(TrainerLog)


def _shares_batches(args: Any, model: Any) -> bool:
    parallelism = getattr(args, "parallelism_config", None)
    names = ("tp_size", "cp_size", "sp_size")
    sizes = [getattr(parallelism, name, None) for name in names]
    return any((size or 1) > 1 for size in (*sizes, getattr(model, "tp_size", None)))


def _flops(model: torch.nn.Module) -> ModelFlops | str:
    try:
        return ModelFlops.of(model)
    except ValueError as error:
        return str(error)


def _peak(
    args: Any, model: torch.nn.Module, device: torch.device | None
) -> float | str:
    """Return the dense peak of a rank's GPU in FLOP/s, or why it is not known."""
    import torch

    if device is None or device.type != "cuda":
        return "the model is on a CPU"
    precision = "tf32" if is_tf32(torch.backends.cuda.matmul) else "fp32"
    dtypes = {weight.dtype for weight in model.parameters()}
    if args.bf16 or torch.bfloat16 in dtypes:
        precision = "bf16"
    elif args.fp16 or torch.float16 in dtypes:
        precision = "fp16"
    name = torch.cuda.get_device_name(device)
    peaks = gpu_peaks(name)
    rate = peaks and peaks.flop_per_second.get(precision)
    return rate or f"nbkit has no {precision} peak FLOP/s for {name}"


def run_context() -> Context | None:
    """Return this rank's context; None outside of a run."""
    try:
        return context()
    except RunError:
        return None
