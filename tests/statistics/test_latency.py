"""Percentiles of latencies, and what a run's lines of them say together."""

import random
import statistics

import pytest

from nbkit.errors import NotEnoughDataError
from nbkit.statistics import latency_timings, percentile


def line(size, seconds, **more):
    return {
        "kind": "inference",
        "batch_size": size,
        "times_seconds": seconds,
        "throughput_seconds": 2.0,
        "throughput_batches": 4,
        "throughput": "passes in a row",
        "began": 10.0,
        "ended": 12.0,
        "peak_memory_allocated_bytes": None,
        "peak_rss_bytes": 7,
        **more,
    }


def test_a_percentile_is_that_of_the_standard_library():
    drawn = random.Random(0)
    values = [drawn.expovariate(1) for _ in range(400)]

    every = statistics.quantiles(values, n=100, method="inclusive")

    for percent in (1, 50, 95, 99):
        assert percentile(values, percent) == pytest.approx(every[percent - 1])
    assert percentile([3.0], 50) == 3.0


@pytest.mark.parametrize(("percent", "fewest"), [(95, 20), (99, 100)])
def test_a_tail_that_no_value_lies_beyond_is_not_known(percent, fewest):
    assert percentile([1.0] * (fewest - 1), percent) is None
    assert percentile([1.0] * fewest, percent) == 1.0


def test_no_latency_has_no_percentile():
    with pytest.raises(NotEnoughDataError, match="0 values"):
        percentile([], 50)


def test_lines_of_one_batch_size_are_one_measurement():
    rows = [line(8, [0.1] * 60), line(8, [0.3] * 60), line(1, [0.2])]

    found = latency_timings(rows)

    assert list(found) == [8, 1]
    assert found[8].passes == 120
    assert found[8].p50_seconds == pytest.approx(0.2)
    assert found[8].p99_seconds == pytest.approx(0.3)
    assert found[8].images == 32
    assert found[8].images_per_second == 16.0
    assert (found[1].p50_seconds, found[1].p95_seconds) == (0.2, None)


def test_memory_is_that_of_the_device_where_it_has_its_own():
    found = latency_timings([line(1, [0.1]), line(2, [0.1], **{GPU: 5})])

    assert [one.peak_memory_bytes for one in found.values()] == [7, 5]


GPU = "peak_memory_allocated_bytes"
