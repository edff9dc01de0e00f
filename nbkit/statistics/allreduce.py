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
    """Timing of consecutive all-reduces of one message size in one run."""

    world_size: int
    message_bytes: int
    iterations: int
    time_seconds: float
    """Median duration of one all-reduce."""
    time_seconds_q25: float
    time_seconds_q75: float
    algorithm_bandwidth_bytes_per_second: float
    """Algorithm and bus bandwidth are computed from the median duration."""
    bus_bandwidth_bytes_per_second: float


def allreduce_timing(row: Mapping[str, Any]) -> AllReduceTiming:
    """Return the timing computed from one record of raw durations."""
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

    The algorithm bandwidth is ``message_bytes / time_seconds``. Each rank sends
    and receives ``2 (n - 1) / n`` of the message. Multiplied by that factor, the
    bandwidth can be compared with the link speed for any number of ranks ``n``.
    """
    return message_bytes / time_seconds * 2 * (world_size - 1) / world_size
