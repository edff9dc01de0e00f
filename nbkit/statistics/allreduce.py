"""All-reduce timings as bandwidths, by nccl-tests' definitions.

References
----------
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from nbkit.statistics.summary import quartiles


@dataclass(frozen=True)
class AllReduceTiming:
    """All-reduces of one message size, one after the other in one run."""

    world_size: int
    message_bytes: int
    iterations: int
    time_seconds: float
    """Median duration of one all-reduce."""
    time_seconds_q25: float
    time_seconds_q75: float
    algorithm_bandwidth_bytes_per_second: float
    """Of the median duration, as the next one."""
    bus_bandwidth_bytes_per_second: float


def allreduce_timing(row: Mapping[str, Any]) -> AllReduceTiming:
    """Return what a line of raw durations says."""
    seconds = row["times_seconds"]
    size, world_size = row["message_bytes"], row["world_size"]
    middle = median(seconds)
    q25, q75 = quartiles(seconds)
    return AllReduceTiming(
        world_size,
        size,
        len(seconds),
        middle,
        q25,
        q75,
        size / middle,
        bus_bandwidth_bytes_per_second(size, middle, world_size),
    )


def bus_bandwidth_bytes_per_second(
    message_bytes: int, time_seconds: float, world_size: int
) -> float:
    """Return an all-reduce's bus bandwidth by nccl-tests' definition.

    The algorithm bandwidth is ``message_bytes / time_seconds``. Each rank has to send
    and receive ``2 (n - 1) / n`` of the message, and multiplying by that factor gives
    a number that can be held against the speed of the link whatever ``n`` is.
    """
    return message_bytes / time_seconds * 2 * (world_size - 1) / world_size
