"""A rank of nbkit that is looked into: `python probed_rank.py RUN_DIR [--poison ...]`.

It is the worker itself, started as torchrun starts it, with what a check needs hung on:
memory that nobody has written holds NaN, the loss scale starts where it is told, a wait
for the device is an error, times are taken by the wall clock. What it saw is in
``<run>/probe-<rank>.json``.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

_POISONED_BYTES = 2**30
"""Of freed memory, in pieces of each size: torch keeps pools by size."""


def main() -> None:
    """Hang on what is asked for, then be a rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--start-scale", type=float)
    parser.add_argument("--poison", action="store_true")
    parser.add_argument("--no-waits", action="store_true")
    parser.add_argument("--wall-clock", action="store_true")
    parser.add_argument("--alone-over-nccl", action="store_true")
    parser.add_argument("--with-switches", action="store_true")
    arguments = parser.parse_args()
    config = json.loads((arguments.run / "config.json").read_bytes())
    seen: dict[str, Any] = {}
    # The worker sets these before it imports torch, which happens below.
    if config["deterministic"]:
        from nbkit.config.determinism import DETERMINISTIC_VARIABLES

        for name, value in DETERMINISTIC_VARIABLES.items():
            os.environ.setdefault(name, value)
    first, last = config["warmup_steps"] + 1, config["steps"]
    if arguments.poison:
        _poison()
    if arguments.start_scale:
        _start_scale_at(arguments.start_scale)
    if arguments.no_waits:
        _forbid_waits(first, last)
    if arguments.wall_clock:
        _take_wall_clock(first, last, seen)
    if arguments.alone_over_nccl:
        _exchange_alone(seen)
    if arguments.with_switches:
        _allow_switches()
    _look_at_state(seen)
    _tell_at_the_end(arguments.run, seen)
    from nbkit.worker.__main__ import main as be_a_rank

    sys.argv = [sys.argv[0], str(arguments.run)]
    be_a_rank()


def _poison() -> None:
    """Let memory that torch hands out unwritten hold NaN."""
    import torch

    empty_like = torch.empty_like

    @functools.wraps(empty_like)
    def poisoned(*args: Any, **kwargs: Any) -> torch.Tensor:
        made = empty_like(*args, **kwargs)
        return made.fill_(torch.nan) if made.is_floating_point() else made

    torch.empty_like = poisoned
    if not torch.cuda.is_available():
        return
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    free_bytes, _ = torch.cuda.mem_get_info(device)
    total = min(_POISONED_BYTES, free_bytes // 8)
    for piece in (2**10, 2**18, 2**22, 2**26):
        count = min(1024, max(1, total // 4 // piece))
        pieces = [
            torch.full((piece // 4,), torch.nan, device=device) for _ in range(count)
        ]
        del pieces


def _start_scale_at(scale: float) -> None:
    import torch

    start = torch.amp.GradScaler.__init__

    @functools.wraps(start)
    def started(self: Any, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **{"init_scale": scale, **kwargs})

    torch.amp.GradScaler.__init__ = started


def _forbid_waits(first: int, last: int) -> None:
    """Make a wait for the device an error from one step to another."""
    import torch

    from nbkit.worker.step_clock import StepClock

    begin, end = StepClock.begin, StepClock.end

    def begin_step(self: Any, step: int, epoch: int) -> None:
        if step == first:
            torch.cuda.synchronize()
            torch.cuda.set_sync_debug_mode("error")
        begin(self, step, epoch)

    def end_step(self: Any, *args: Any, **kwargs: Any) -> None:
        end(self, *args, **kwargs)
        if self._current.step == last:
            torch.cuda.set_sync_debug_mode("default")

    StepClock.begin, StepClock.end = begin_step, end_step


def _take_wall_clock(first: int, last: int, seen: dict[str, Any]) -> None:
    """Take the time of the measured steps, with nothing under way before and after."""
    import torch

    from nbkit.worker.step_clock import StepClock

    begin, end = StepClock.begin, StepClock.end
    began = 0.0

    def begin_step(self: Any, step: int, epoch: int) -> None:
        nonlocal began
        if step == first:
            torch.cuda.synchronize()
            began = time.perf_counter()
        begin(self, step, epoch)

    def end_step(self: Any, *args: Any, **kwargs: Any) -> None:
        end(self, *args, **kwargs)
        if self._current.step == last:
            torch.cuda.synchronize()
            seen["wall_seconds"] = time.perf_counter() - began

    StepClock.begin, StepClock.end = begin_step, end_step


def _exchange_alone(seen: dict[str, Any]) -> None:
    """Let a lone rank exchange its gradients with itself, over NCCL."""
    import torch.distributed as dist
    from torch.distributed import HashStore  # pyright: ignore[reportPrivateImportUsage]

    from nbkit.worker import train

    wrap = train.wrap_ddp

    def join(rank: Any, config: Any, device: Any) -> Any:
        dist.init_process_group(
            "nccl", store=HashStore(), rank=0, world_size=1, device_id=device
        )
        seen["backend"] = dist.get_backend()
        return dist.new_group(backend="gloo")

    def wrapped(model: Any, config: Any, rank: Any, *others: Any) -> Any:
        return wrap(model, config, dataclasses.replace(rank, world_size=2), *others)

    train.create_process_group, train.wrap_ddp = join, wrapped


def _allow_switches() -> None:
    """Let switches add gradients of a deterministic run, which nbkit refuses."""
    from nbkit.worker import seeding

    seeding.variables_against = lambda environment: None


def _look_at_state(seen: dict[str, Any]) -> None:
    """See whether the optimizer's state is sound after a skipped first update."""
    import torch

    from nbkit.worker.precision import Precision

    update = Precision.update

    def updated(self: Any, optimizer: Any) -> Any:
        scales = update(self, optimizer)
        if "first_update_skipped" not in seen:
            skipped = scales is not None and bool(scales[1] < scales[0])
            seen["first_update_skipped"] = skipped
            seen["state_not_zero"] = []
            if skipped:
                seen["state_not_zero"] = sorted(
                    {
                        name
                        for state in optimizer.state.values()
                        for name, value in state.items()
                        if torch.is_tensor(value) and not bool((value == 0).all())
                    }
                )
        return scales

    Precision.update = updated


def _tell_at_the_end(run: Path, seen: dict[str, Any]) -> None:
    """Write what was seen, and a hash of the weights, when the training is over."""
    from nbkit.worker import train
    from nbkit.worker.finiteness import FiniteWatch

    make, leave = FiniteWatch.__init__, train.final_barrier
    models: list[Any] = []

    def made(self: Any, model: Any) -> None:
        models.append(model)
        make(self, model)

    def left(group: Any) -> None:
        digest = hashlib.sha256()
        for name, value in models[-1].state_dict().items():
            if value.is_floating_point() and "running" not in name:
                digest.update(value.detach().float().cpu().contiguous().numpy())
        seen["weights_sha256"] = digest.hexdigest()
        rank = os.environ.get("RANK", "0")
        (run / f"probe-{rank}.json").write_text(json.dumps(seen))
        leave(group)

    FiniteWatch.__init__, train.final_barrier = made, left


if __name__ == "__main__":
    main()
