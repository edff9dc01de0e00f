"""Projections against what others measured: the largest point of a series held out.

The figures are those of the tables in the introduction of
`nbkit.questions.scaling.projection` and of
`nbkit.questions.scaling.curves`.
"""

from __future__ import annotations

import functools
import math

import pytest

from nbkit.questions.scaling import projection
from nbkit.questions.scaling.curves import (
    SCATTER,
    SCATTER_FREEDOM,
    Curves,
    growth,
)
from nbkit.questions.scaling.projection import Point, project
from nbkit.references.rows import published, series

ANY_NODE = 10**9  # large enough that nothing is refused for crossing nodes
PUBLISHED = {
    label: rows for label, rows in series(published()).items() if len(rows) > 2
}
NEAR = 0.03


def batches(label):
    return {row.batch_size_per_gpu or 0 for row in PUBLISHED[label]}


ORIGINAL = [
    label for label, rows in PUBLISHED.items() if rows[0].origin != "recomputed"
]
ACROSS_NODES = [
    label
    for label in ORIGINAL
    if PUBLISHED[label][-1].nnodes > 1
    and max(batches(label)) <= 4 * max(min(batches(label)), 1)
]
OTHERS = [label for label in PUBLISHED if label not in ACROSS_NODES]
ONE_BATCH = [label for label in ORIGINAL if len(batches(label)) == 1]
SETS = {
    "18 across nodes": ACROSS_NODES,
    "the other 22": OTHERS,
    "all 40": list(PUBLISHED),
}


def seconds_per_image(rows):
    return {row.world_size: row.world_size / row.images_per_second for row in rows}


@functools.cache
def projected(label, held_out=1):
    """Return the ends over the measured value of the largest; None if refused."""
    rows = PUBLISHED[label]
    points = [
        Point(row.world_size, row.nnodes, row.images_per_second)
        for row in rows[:-held_out]
    ]
    largest = rows[-1]
    outlook = project(points, [largest.world_size], gpus_per_node=ANY_NODE)
    if not outlook.projections:
        return None
    (one,) = outlook.projections
    return (
        one.low_images_per_second / largest.images_per_second,
        one.high_images_per_second / largest.images_per_second,
    )


def plain_pair(label):
    """Return the ends of a latency and a bandwidth ring, by least squares each."""
    *rows, largest = PUBLISHED[label]
    measured = seconds_per_image([largest])[largest.world_size]
    times = seconds_per_image(rows)
    ends = []
    for shape in (1, -1):
        at = {size: growth(size, shape) for size in times}
        middle, time = sum(at.values()) / len(at), sum(times.values()) / len(at)
        slope = sum((at[size] - middle) * (times[size] - time) for size in times)
        slope /= sum((value - middle) ** 2 for value in at.values())
        there = time + slope * (growth(largest.world_size, shape) - middle)
        ends.append(measured / there)
    return min(ends), max(ends)


def refitted(label):
    """Return the ends with the scatter that all other publishers' series suggest."""
    *rows, largest = PUBLISHED[label]
    scatter, freedom = best_scatter(PUBLISHED[label][0].publisher)
    curves = Curves(seconds_per_image(rows), scatter=scatter, scatter_freedom=freedom)
    measured = seconds_per_image([largest])[largest.world_size]
    fast, slow = curves.interval(largest.world_size)
    return measured / slow, measured / fast


def counted(ends):
    """Return refused, inside, near and the mean half-width in per cent."""
    made = [pair for pair in ends if pair is not None]
    misses = [max(low - 1, 1 - high, 0.0) for low, high in made]
    widths = [(high - low) / (high + low) for low, high in made]
    return (
        len(ends) - len(made),
        sum(miss == 0 for miss in misses),
        sum(miss <= NEAR for miss in misses),
        sum(widths) / len(widths) * 100,
    )


def in_the_introduction(name):
    """Return the figures of a row of the table, by its name."""
    (line,) = [
        line
        for line in (projection.__doc__ or "").splitlines()
        if line.strip().startswith(f"{name}  ")
    ]
    return [float(cell) for cell in line.rsplit(maxsplit=4)[1:]]


def test_largest_point_across_nodes_is_inside_or_near_and_the_interval_narrow():
    refused, _, near, half_width = counted([projected(name) for name in ACROSS_NODES])

    assert len(ACROSS_NODES) == 18
    assert refused == 0
    assert near >= 17
    assert half_width <= 6


def test_the_plain_pair_of_rings_is_wider():
    _, inside, near, half_width = counted([plain_pair(name) for name in ACROSS_NODES])

    assert (inside, near) == (13, 18)
    assert half_width == pytest.approx(6.6, abs=0.05)
    row = in_the_introduction("18, plain pair of rings")
    assert row == pytest.approx([0, inside, near, half_width], abs=0.05)


@pytest.mark.parametrize("name", SETS)
def test_the_introduction_states_what_projections_are_worth(name):
    found = counted([projected(label) for label in SETS[name]])

    assert in_the_introduction(name) == pytest.approx(found, abs=0.05)


def test_the_introduction_states_what_two_held_out_points_cost():
    longer = [label for label in PUBLISHED if len(PUBLISHED[label]) > 3]

    found = counted([projected(label, 2) for label in longer])

    assert len(longer) == 25
    assert in_the_introduction("25, two held out") == pytest.approx(found, abs=0.05)


def test_no_published_series_is_faster_than_linear_by_what_is_refused():
    gains = [
        (row.images_per_second / row.world_size)
        / (rows[0].images_per_second / rows[0].world_size)
        for rows in PUBLISHED.values()
        for row in rows
    ]

    assert max(gains) == pytest.approx(1.006, abs=0.0005)


def test_a_scatter_refitted_without_the_publisher_does_as_well():
    found = counted([refitted(label) for label in ACROSS_NODES])

    assert found[2] >= 17
    assert in_the_introduction("18, refitted") == pytest.approx(found, abs=0.05)


def test_the_one_miss_is_a_series_whose_next_to_last_point_is_the_odd_one():
    (label,) = [
        label
        for label in PUBLISHED
        if (ends := projected(label)) and max(ends[0] - 1, 1 - ends[1]) > NEAR
    ]

    assert label == "OneFlow DLPerf NGC TensorFlow 1.15, V100-SXM2-16GB, fp16"
    *_, before, last = PUBLISHED[label]
    # twice the GPUs gave more than twice the rate
    assert last.images_per_second > 2.05 * before.images_per_second


# How probable a scatter and its firmness are, from all points of a series.

SCATTERS = [0.005, 0.006, 0.0075, 0.01, 0.0125]
FREEDOMS = [1, 1.5, 2, 3, 4]


@functools.cache
def squared_residuals(label):
    """Return those of every member of the family, and the number of points."""
    times = seconds_per_image(PUBLISHED[label])
    logs = [math.log(time) for time in times.values()]
    squares = []
    for shape in (-1, -0.6, -0.2, 0.2, 0.6, 1):
        parts = [growth(size, shape) / growth(max(times), shape) for size in times]
        for cell in range(100):
            overhead = 1 / ((cell + 0.5) / 100) - 1
            rest = [
                log - math.log1p(overhead * part)
                for log, part in zip(logs, parts, strict=True)
            ]
            centre = sum(rest) / len(rest)
            squares.append(sum((one - centre) ** 2 for one in rest))
    return squares, len(logs)


@functools.cache
def log_likelihood(label, scatter, freedom):
    squares, points = squared_residuals(label)
    expected, power = freedom * scatter**2, (freedom + points - 1) / 2
    likelihood = sum((expected + one) ** -power for one in squares) / len(squares)
    front = math.lgamma(power) - math.lgamma(freedom / 2)
    return front + freedom / 2 * math.log(expected) + math.log(likelihood)


def total(scatter, freedom, without):
    return sum(
        log_likelihood(label, scatter, freedom)
        for label in ONE_BATCH
        if PUBLISHED[label][0].publisher != without
    )


@functools.cache
def best_scatter(without):
    return max(
        ((scatter, freedom) for scatter in SCATTERS for freedom in FREEDOMS),
        key=lambda pair: total(*pair, without),
    )


def test_the_scatter_is_nearly_the_likeliest_whichever_publisher_is_left_out():
    publishers = {PUBLISHED[label][0].publisher for label in ONE_BATCH}
    behind = [
        total(*best_scatter(without), without)
        - total(SCATTER, SCATTER_FREEDOM, without)
        for without in [None, *publishers]
    ]

    # the figures that the module's introduction states
    assert len(ONE_BATCH) == 29
    assert max(behind) == pytest.approx(1.55, abs=0.05)
