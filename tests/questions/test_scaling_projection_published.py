"""Projections against what others measured: the largest point of a series held out.

The figures are those of the tables in the introduction of
`nbkit.questions.scaling.projection` and of
`nbkit.questions.scaling.curves`.
"""

from __future__ import annotations

import functools

import pytest

from nbkit.questions.scaling import projection
from nbkit.questions.scaling.projection import ProjectedPoint, project
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
SETS = {
    "18 across nodes": ACROSS_NODES,
    "the other 22": OTHERS,
    "all 40": list(PUBLISHED),
}


@functools.cache
def projected(label, held_out=1):
    """Return the ends over the measured value of the largest; None if refused."""
    rows = PUBLISHED[label]
    points = [
        ProjectedPoint(row.world_size, row.nnodes, row.images_per_second)
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


@pytest.mark.parametrize("name", SETS)
def test_the_introduction_states_what_projections_are_worth(name):
    found = counted([projected(label) for label in SETS[name]])

    assert in_the_introduction(name) == pytest.approx(found, abs=0.05)


def test_the_introduction_states_what_two_held_out_points_cost():
    longer = [label for label in PUBLISHED if len(PUBLISHED[label]) > 3]

    found = counted([projected(label, 2) for label in longer])

    assert len(longer) == 25
    assert in_the_introduction("25, two held out") == pytest.approx(found, abs=0.05)
