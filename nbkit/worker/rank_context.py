"""The run as code inside a rank sees it: `context`, `log`.

A function that `nbkit.launch` runs calls these. They import torch only where they need
it, so that the facade may offer them everywhere.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import math
import operator
import os
import time
from collections.abc import Mapping
from enum import IntEnum
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbkit import clock
from nbkit.config import ExperimentConfig
from nbkit.errors import ConfigError, RunError
from nbkit.reading import retry_io
from nbkit.store.heartbeat import Phase
from nbkit.store.metrics import JsonLinesWriter
from nbkit.worker.rank import Rank
from nbkit.worker.tensorboard import TensorBoard

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from nbkit.worker.distributed import StopAgreement


_MOST_CALLS, _MOST_SECONDS = 4, 1.0
"""Between two agreements of ranks on a stop, which cost a step of 0.1 s up to 1 %. More
calls would be too many once they are slower: two agreements have to fit in a grace."""
_MOST_RETURNED = 1000
"""Values of a dict: who reads the run's metrics reads them all."""

_current: Context | None = None
_recorder: Callable[[Mapping[str, float], int | None], None] | None = None


def context() -> Context:
    """Return the context of this rank.

    Raises
    ------
    RunError
        If called outside a function or script that `nbkit.launch` runs.
    """
    if _current is None:
        message = (
            "nbkit.context() or nbkit.log() was called outside a run. Call it in a "
            "function or script that nbkit.launch() runs; nbkit.log() also works in a "
            "plug-in's model or loader."
        )
        raise RunError(message)
    return _current


def log(
    values: Mapping[str, float],
    step: int | None = None,
    *,
    total_steps: int | None = None,
) -> None:
    """Record metrics; rank 0 writes them, and every rank reports progress.

    Call it in a function or script, or in a plug-in's model or loader to add to the
    metrics of the training. The values are in ``run.metrics("log")``, the live view and
    TensorBoard; the last value of each is in ``run.summary.logged``.

    Parameters
    ----------
    values
        Numbers or one-element tensors by name, such as ``{"loss": 0.3}``; a tensor on a
        GPU makes the step wait for it. Lists of runs show a function's
        ``images_per_second`` and ``loss``.
    step
        Step of the values; None uses the step after the last logged one or, in a
        plug-in, the current step.
    total_steps
        Total number of steps, shown as progress; ignored in a plug-in.

    Raises
    ------
    ConfigError
        If a value is not a number, if the step is not an integer of 0 or more, or if
        nbkit records this name itself.
    RunError
        If called outside a run, or in a process that a rank has forked.
    """
    if _recorder is None:
        context().log(values, step, total_steps=total_steps)
    else:
        _recorder(values, step)


class Source(IntEnum):
    """Source of a run's metrics; a higher one takes precedence."""

    PRINT = 0
    """Lines that the script prints."""
    TRACKER = 1
    """TensorBoard writer of the script."""
    LOG = 2
    """`nbkit.log`, and the trainers that nbkit knows."""


class Context:
    """One rank of a run.

    Parameters
    ----------
    rank
        This rank.
    config
        Configuration of the run.
    device
        Device of this rank; None for the CPU, so that torch is not imported until
        `device` is read.
    """

    def __init__(
        self, rank: Rank, config: ExperimentConfig, device: torch.device | None
    ) -> None:
        self.config = config
        """Configuration of the run."""
        self.rank = rank.rank
        """Global rank (``RANK``)."""
        self.local_rank = rank.local_rank
        """Rank on this node (``LOCAL_RANK``)."""
        self.world_size = rank.world_size
        """Ranks of the run (``WORLD_SIZE``)."""
        self.local_world_size = rank.local_world_size
        """Ranks on this node (``LOCAL_WORLD_SIZE``)."""
        self.attempt = rank.attempt
        """Number of the attempt: 0, plus 1 for each `Run.resume` and restart."""
        self.run_id = rank.paths.run_id
        """Id of the run."""
        self.run_folder: Path = rank.paths.root
        """Folder of the run."""
        self.was_stopped = False
        """Whether `should_stop` has returned True."""
        self._rank = rank
        self._pid = os.getpid()
        self._device = device
        self._step = -1
        self._group: tuple[Any, Any] | None = None
        """The default process group, and a further one for flags."""
        self._writer = JsonLinesWriter(rank.paths.metrics) if rank.rank == 0 else None
        is_writer = rank.rank == 0 and config.tensorboard
        self._tensorboard = TensorBoard(rank) if is_writer else None
        self._agreement: StopAgreement | None = None
        self._agreed_at, self._calls_left = 0.0, 0
        self._source = Source.PRINT
        self._source_of: dict[str, Source] = {}
        """Where each name comes from."""

    @property
    def device(self) -> torch.device:
        """The `torch.device` of this rank: its GPU, or the CPU."""
        if self._device is None:
            import torch

            self._device = torch.device("cpu")
        return self._device

    @property
    def step(self) -> int:
        """Last logged step; 0 before the first."""
        return max(self._step, 0)

    def log(
        self,
        values: Mapping[str, float],
        step: int | None = None,
        *,
        total_steps: int | None = None,
        beside_steps: bool = False,
    ) -> None:
        """Record metrics; see `nbkit.log`.

        With ``beside_steps``, they say nothing about where the run is.
        """
        refuse_in_child(self._pid, self.rank)
        self.record_only(Source.LOG)
        step = self._step + 1 if step is None else whole_step(step)
        of: dict[str, int] = {}
        if total_steps is not None:
            of = {"total_steps": whole_step(total_steps, "total_steps")}
        if beside_steps:
            of["beside_steps"] = True
        self._record(Source.LOG, values, step, **of)

    def record_only(self, source: Source) -> None:
        """Record new names only from this source and higher ones from now on."""
        self._source = max(self._source, source)

    def follow(self, source: Source, values: Mapping[str, float], step: int) -> None:
        """Record values from a source, unless a higher one has the same name.

        A name that a better source lacks goes on: else it would keep an early value.
        """
        values = {
            name: value
            for name, value in values.items()
            if source >= self._source_of.get(name, self._source)
        }
        if not values or os.getpid() != self._pid:
            return
        marks = {"printed": True} if source is Source.PRINT else {}
        # Epochs beside steps, for example: the run is at the higher number.
        if whole_step(step) < self._step or source < self._source:
            marks["beside_steps"] = True
        self._source = max(self._source, source)
        self._record(source, values, step, **marks)

    def _record(
        self, source: Source, values: Mapping[str, float], step: int, **marks: Any
    ) -> None:
        recorded = numbers(values)
        self._source_of.update(dict.fromkeys(recorded, source))
        beside_steps = "beside_steps" in marks
        if not beside_steps:
            self._step = step
            self._rank.beat(step, Phase.COMPUTE)
        self._write("log", step, values=recorded, **marks)
        if self._tensorboard is not None:
            self._tensorboard.write(recorded, step, beside_steps=beside_steps)

    def record_last_prints(self, values: Mapping[str, float]) -> None:
        """Record what rank 0 printed last, unless a name has a better source."""
        recorded = {
            name: value
            for name, value in numbers(values).items()
            if self._source_of.get(name, Source.PRINT) is Source.PRINT
        }
        if recorded:
            self._write("log", self.step, values=recorded, at_end=True)

    def record_returned(self, returned: Any) -> None:
        """Record the first numbers that a function returned, by name if it is a dict.

        All other returned values are ignored.
        """
        if self._writer is None:
            return
        values = returned if isinstance(returned, dict) else {"returned": returned}
        recorded: dict[str, float | None] = {}
        for name, value in itertools.islice(dict.items(values), _MOST_RETURNED):
            with contextlib.suppress(Exception):
                if isinstance(value, Real) or hasattr(value, "item"):
                    recorded |= numbers({name: value})
        if recorded:
            self._write("returned", self.step, values=recorded)

    def should_stop(self) -> bool:
        """Return whether the run should stop; if so, save a checkpoint and return.

        With `torch.distributed` initialized, all ranks return the same value: every
        rank must call this at the same point of its loop. They agree at
        every call, or at every 4th of fast ones, and hear of a stop one agreement late.
        Without it, each rank decides alone. A function that never calls this in the
        main thread is ended immediately by `Run.stop`; one with its own SIGTERM handler
        is stopped by that handler instead.
        """
        self._rank.answer_requests_to_stop()
        group = self._host_group()
        if group is None:
            answer = self._rank.stop_requested
        else:
            if self._agreement is None:
                from nbkit.worker.distributed import StopAgreement

                self._agreement = StopAgreement(self._rank, group)
                self._calls_left = 0
            answer = self._agrees_to_stop(self._agreement)
        self.was_stopped = self.was_stopped or answer
        return answer

    def _agrees_to_stop(self, agreement: StopAgreement) -> bool:
        if self._calls_left and not self.was_stopped:
            self._calls_left -= 1
            return False
        # Rank 0 knows how long its calls took: its number reaches every rank.
        now = time.monotonic()
        seconds = (now - self._agreed_at) / max(agreement.window_steps, 1)
        proposed = max(1, min(_MOST_CALLS, int(_MOST_SECONDS / max(seconds, 1e-3))))
        answer = agreement.reached(window_steps=proposed)
        self._agreed_at = now
        self._calls_left = max(agreement.window_steps - 1, 0)
        return answer

    def save_checkpoint(self, state: Mapping[str, Any], step: int) -> Path:
        """Save a checkpoint for `load_checkpoint`; every rank must call it."""
        from nbkit.worker import checkpoint
        from nbkit.worker.generators import random_state

        step = whole_step(step)
        self._rank.beat(step, Phase.CHECKPOINT)
        path = checkpoint.save(
            self._rank.paths.checkpoints,
            step,
            checkpoint.with_python_numbers(dict(state)),
            random_state(),
            self.rank,
            self.world_size,
            self._barrier(),
            self.config.checkpoints_kept,
        )
        self._write("checkpoint", step, path=str(path.relative_to(self.run_folder)))
        self._rank.beat(step, Phase.COMPUTE)
        return path

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Return the newest complete checkpoint's state, on the CPU, or None.

        The global random generators of Python, NumPy and torch are restored, and `log`
        continues with the next step. Call it before the first `log`: what a resumed
        attempt logs replaces earlier values from that step on.
        """
        from nbkit.worker import checkpoint
        from nbkit.worker.generators import restore_random_state

        path = checkpoint.latest(self._rank.paths.checkpoints)
        if path is None:
            return None
        state, own = checkpoint.load(path, self.rank, self.world_size)
        restore_random_state(own)
        self._step = checkpoint.step_of(path) - 1
        return state

    def close(self) -> None:
        """End what `should_stop` has begun, and write what is left to the disk.

        No group is made here: that is a collective, and other ranks may have left.
        """
        if self._agreement is not None and self._has_group():
            # Where a rank has left meanwhile, no rank needs the answer any more.
            with contextlib.suppress(RuntimeError):
                self._agreement.close()
        self.write_out()

    def write_out(self) -> None:
        """Write what is left to the disk."""
        if self._writer is not None:
            self._writer.sync()
            self._writer.close()
        if self._tensorboard is not None:
            self._tensorboard.close()

    def _write(self, kind: str, step: int, **values: Any) -> None:
        if (writer := self._writer) is not None:
            line = {"kind": kind, "attempt": self.attempt, "step": step}
            retry_io(lambda: writer.write({**line, "t": clock.now(), **values}))

    def _host_group(self) -> Any:
        """Return a group for flags on the host; None for ranks that have none."""
        if self.world_size == 1:
            return None
        import torch.distributed as dist

        if not dist.is_initialized():
            return None
        if not self._has_group():
            timeout = datetime.timedelta(seconds=self.config.collective_timeout_seconds)
            flags = dist.new_group(backend="gloo", timeout=timeout)
            self._group = dist.group.WORLD, flags
            self._agreement = None  # it was made in the group before
        assert self._group is not None
        return self._group[1]

    def _has_group(self) -> bool:
        """Return whether a group for flags was made beside the default one of now."""
        import torch.distributed as dist

        return (
            self._group is not None
            and dist.is_initialized()
            and self._group[0] is dist.group.WORLD
        )

    def _barrier(self) -> Any:
        if self.world_size == 1:
            return lambda: None
        import torch.distributed as dist

        group = self._host_group()
        if group is None:
            message = (
                f"save_checkpoint() with world_size={self.world_size} requires a "
                "process group. Call torch.distributed.init_process_group() first."
            )
            raise RunError(message)
        return lambda: dist.barrier(group)


def enter(rank: Rank, config: ExperimentConfig, device: torch.device | None) -> Context:
    """Make this process's context."""
    global _current
    _current = Context(rank, config, device)
    return _current


def log_with(recorder: Callable[[Mapping[str, float], int | None], None]) -> None:
    """Let a training record what this process logs: it has its own file."""
    global _recorder
    _recorder = recorder


def refuse_in_child(pid: int, rank: int) -> None:
    """Raise a `RunError` in a process that a rank, whose pid is given, has forked.

    It has the rank's files and locks, but not the thread that serves them: logging
    there could block forever.
    """
    if os.getpid() != pid:
        message = (
            f"nbkit.log() was called in process {os.getpid()}, a fork of rank {rank}. "
            "Call it in the rank's process, for example where the loader returns its "
            "batches."
        )
        raise RunError(message)


def numbers(values: Mapping[str, Any]) -> dict[str, float | None]:
    """Return values as numbers for JSON, with None for NaN and Inf."""
    return {str(name): _number(name, value) for name, value in values.items()}


def whole_step(step: Any, name: str = "step") -> int:
    """Return a step as a whole number from 0 on."""
    try:
        number = -1 if isinstance(step, bool) else operator.index(step)
    except TypeError:
        number = -1
    if number < 0:
        message = f"{name}={step!r} is invalid. Pass an integer of 0 or more."
        raise ConfigError(message)
    return number


def _number(name: object, value: Any) -> float | None:
    """Return a number for JSON; what is not finite becomes None."""
    try:
        number = value.item() if hasattr(value, "item") else value
        # Python prints no more than 4,300 digits.
        is_int = isinstance(number, int) and not isinstance(number, bool)
        if is_int and abs(number) < 2**63:
            return number
        number = float(number)
    except OverflowError:
        return None
    except (TypeError, ValueError, RuntimeError) as error:
        what = f"{value!r:.80}"
        message = f"{name}={what} is not a number ({error}). Log numbers only."
        raise ConfigError(message) from None
    return number if math.isfinite(number) else None
