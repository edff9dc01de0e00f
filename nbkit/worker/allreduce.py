"""Durations of all-reduces, by message size."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import torch
import torch.distributed as dist

from nbkit.config import AllReduceConfig, ExperimentConfig
from nbkit.store.heartbeat import Phase
from nbkit.worker.distributed import (
    StopAgreement,
    choose_device,
    create_process_group,
    final_barrier,
)
from nbkit.worker.facts import write_facts
from nbkit.worker.metrics_log import MetricsLog
from nbkit.worker.rank import Rank


def measure_allreduce(rank: Rank, config: ExperimentConfig) -> None:
    """Time all-reduces of growing messages; a lone rank has nothing to reduce."""
    # Every duration is kept; `nbkit.statistics.allreduce_timing` makes bandwidths of
    # them.
    device = choose_device(rank, config)
    group = create_process_group(rank, config, device)
    write_facts(rank, config, device, group, None, None, completed=False)
    log = MetricsLog(rank, config, 0)
    agreement = StopAgreement(rank, group)
    stopped = False
    if group is not None:
        for number, size in enumerate(message_sizes(config.allreduce), start=1):
            beat = partial(rank.beat, number, Phase.COLLECTIVE)
            beat()
            stopped = agreement.reached()
            if stopped:
                break
            log.event(
                "allreduce",
                number,
                world_size=rank.world_size,
                message_bytes=size,
                times_seconds=time_all_reduces(size, config.allreduce, device, beat),
            )
    agreement.close()
    write_facts(rank, config, device, group, None, None, completed=not stopped)
    rank.beat(0, Phase.DONE)
    log.close()
    final_barrier(group)


def message_sizes(config: AllReduceConfig) -> Iterator[int]:
    """Yield message sizes in bytes of whole floats, each four times the one before."""
    size = config.bytes_min
    while size <= config.bytes_max:
        yield size // 4 * 4
        size *= 4


def time_all_reduces(
    size: int, config: AllReduceConfig, device: torch.device, beat: Callable[[], None]
) -> list[float]:
    """Return the duration of each timed all-reduce, in seconds."""
    # Each is a sign of progress: all of a size may take longer than the hang timeout.
    message = torch.ones(size // 4, dtype=torch.float32, device=device)
    for _ in range(config.warmup_iterations):
        dist.all_reduce(message)
        low, high = torch.aminmax(message)  # which waits for it on a GPU, too
        if not low == high == dist.get_world_size():
            error = (
                f"all-reduce of ones over {dist.get_world_size()} ranks returned "
                f"{low:g} to {high:g}: data are corrupted in transfer. Check dmesg for "
                "Xid messages, and check the links between GPUs."
            )
            raise ArithmeticError(error)
        message.fill_(1)
        beat()
    dist.barrier()
    if device.type == "cuda":
        return _time_on_gpu(message, config.iterations, beat)
    seconds: list[float] = []
    for _ in range(config.iterations):
        start = time.perf_counter()
        dist.all_reduce(message)
        seconds.append(time.perf_counter() - start)
        message.fill_(1)
        beat()
    return seconds


def _time_on_gpu(
    message: torch.Tensor, iterations: int, beat: Callable[[], None]
) -> list[float]:
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(iterations + 1)]
    torch.cuda.synchronize()
    marks[0].record()
    for mark in marks[1:]:
        dist.all_reduce(message)
        mark.record()
        beat()  # a full queue waits for the device
    for mark in marks:
        mark.synchronize()
        beat()
    return [start.elapsed_time(end) / 1e3 for start, end in pairwise(marks)]
