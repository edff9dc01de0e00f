"""All-reduce durations as bandwidths."""

from __future__ import annotations

import pytest

from nbkit.statistics import allreduce_timing, bus_bandwidth_bytes_per_second


def test_bus_bandwidth_is_nccl_tests_definition():
    one_gib = 2**30

    # 8 ranks move 2 * 7 / 8 of the message: 1 GiB in 10 ms is 187.9 GB/s on the bus
    assert bus_bandwidth_bytes_per_second(one_gib, 0.010, 8) == one_gib * 175
    assert bus_bandwidth_bytes_per_second(one_gib, 0.010, 2) == one_gib * 100
    assert bus_bandwidth_bytes_per_second(one_gib, 0.010, 1) == 0


def test_a_timing_is_the_median_of_its_durations_with_their_quartiles():
    row = {
        "world_size": 2,
        "message_bytes": 1000,
        "times_seconds": [0.5, 0.1, 0.2, 0.3, 0.4],
    }

    timing = allreduce_timing(row)

    assert timing.iterations == 5
    assert timing.time_seconds == 0.3
    quartiles = (timing.time_seconds_q25, timing.time_seconds_q75)
    assert quartiles == pytest.approx((0.2, 0.4))
    assert timing.algorithm_bandwidth_bytes_per_second == pytest.approx(1000 / 0.3)
    # Two ranks: 2 (n - 1) / n = 1.
    assert timing.bus_bandwidth_bytes_per_second == pytest.approx(1000 / 0.3)
