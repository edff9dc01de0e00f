"""When scaling is extended, how far that can be trusted, and when it is refused."""

from __future__ import annotations

import math

import pytest

from nbkit.questions.scaling import projection as module
from nbkit.questions.scaling.curves import SCATTER
from nbkit.questions.scaling.projection import HELD_OUT, project
from nbkit.questions.scaling.projection import ProjectedPoint as Point

GROWTHS = {
    "latency-bound ring": lambda size: size - 1,
    "latency-bound tree": math.log,
    "bandwidth-bound ring": lambda size: 1 - 1 / size,
}


def on_a_curve(growth, sizes, overhead=0.02, **facts):
    return [
        Point(size, 1, size * 1_000 / (1 + overhead * growth(size)), **facts)
        for size in sizes
    ]


def ends(points, target):
    (one,) = project(points, [target], gpus_per_node=1_000).projections
    return one.low_images_per_second, one.high_images_per_second


def half_width(points, target):
    low, high = ends(points, target)
    return (high - low) / (high + low)


@pytest.mark.parametrize("name", GROWTHS)
def test_points_on_a_curve_of_the_family_are_continued_along_it(name):
    *points, further = on_a_curve(GROWTHS[name], (1, 2, 4, 8, 16, 32, 64), 0.05)

    low, high = ends(points, 64)

    assert low < further.images_per_second < high


def test_two_points_leave_every_curve_between_the_rings_possible():
    points = [Point(1, 1, 1_000.0), Point(8, 1, 7_000.0)]
    rate_alone = 8 / 7 - 1

    low, high = ends(points, 32)

    # 80 % of what lies between: the pair of rings itself is wider
    assert 32_000 / (1 + rate_alone * 31 / 7) < low < high
    assert high < 32_000 / (1 + rate_alone * (31 / 32) / (7 / 8)) * (1 + 2 * SCATTER)
    tree = 32_000 / (1 + rate_alone * math.log(32) / math.log(8))
    assert low < tree < high


def test_points_on_no_curve_widen_the_interval():
    smooth = on_a_curve(GROWTHS["latency-bound tree"], (1, 2, 4, 8))
    dented = [*smooth[:2], Point(4, 1, smooth[2].images_per_second * 0.9), smooth[3]]

    assert half_width(dented, 16) > 2 * half_width(smooth, 16)


def test_runs_that_scatter_widen_the_interval():
    growth = GROWTHS["latency-bound tree"]

    sure = half_width(on_a_curve(growth, (1, 2, 4), run_scatter=0.001), 8)
    unsure = half_width(on_a_curve(growth, (1, 2, 4), run_scatter=0.03), 8)

    assert sure == pytest.approx(half_width(on_a_curve(growth, (1, 2, 4)), 8), rel=0.1)
    assert unsure > 2 * sure


def test_what_the_probability_is_worth_is_said_with_the_counts_of_the_introduction():
    lines = (module.__doc__ or "").splitlines()
    (row,) = [line.split() for line in lines if line.strip().startswith("all 40")]
    refused, inside, near = map(int, row[2:5])

    counts = (
        f"of {40 - refused} held-out published points, {inside} were inside their "
        f"intervals and {near} inside or within 3% of them."
    )
    assert HELD_OUT.endswith(counts)
    # how the module text says it: in per cent too
    share = round(100 * inside / (40 - refused))
    assert f"held out, {inside} ({share} %) lay inside" in " ".join(lines)


def test_perfect_scaling_is_continued_with_the_scatter_of_measurements():
    points = [Point(1, 1, 500.0), Point(2, 1, 1_000.0)]

    low, high = ends(points, 8)

    assert low < 4_000 < high
    assert high < 4_000 * 1.03  # scatter is no promise of more than linear
    assert half_width(points, 8) > SCATTER


@pytest.mark.parametrize(
    ("points", "target", "reason"),
    [
        ([Point(1, 1, 500.0), Point(2, 1, 1_100.0)], 4, "10% higher with 2 GPUs than"),
        ([Point(1, 1, 1_000.0), Point(2, 1, 1_400.0)], 8, "the interval is too wide"),
        ([Point(1, 1, 30.0, "cpu"), Point(2, 1, 44.0, "cpu")], 4, "CPU runs are not"),
        ([Point(1, 1, 500.0)], 2, "2 GPU counts are required, but 1 was"),
        (
            [Point(4, 1, 2_100.0), Point(8, 1, 4_000.0), Point(16, 2, 7_600.0)],
            32,
            "only one multi-node size was measured. Measure 2 and 4 nodes",
        ),
    ],
)
def test_project_refused(points, target, reason):
    outlook = project(points, [target], gpus_per_node=8)

    assert outlook.projections == ()
    [refusal] = outlook.refusals
    assert reason in refusal.reason


def test_further_than_four_times_the_largest_size_nothing_is_known():
    points = on_a_curve(GROWTHS["latency-bound tree"], (1, 2))

    outlook = project(points, [8, 9, 64], gpus_per_node=64)

    assert [projection.world_size for projection in outlook.projections] == [8]
    assert [refusal.world_size for refusal in outlook.refusals] == [9, 64]
    assert "4x the largest measured size (2)" in outlook.refusals[0].reason
    assert "Measure 3 GPUs." in outlook.refusals[0].reason
    assert "Measure 16 GPUs." in outlook.refusals[1].reason


def test_one_nodes_points_do_not_reach_across_nodes():
    points = [Point(1, 1, 500.0), Point(2, 1, 980.0)]

    outlook = project(points, [4, 8, 16, 32], gpus_per_node=8)

    assert [projection.world_size for projection in outlook.projections] == [4, 8]
    assert [refusal.world_size for refusal in outlook.refusals] == [16, 32]
    assert "with 8 per node" in outlook.refusals[0].reason
    assert "Measure 2 and 4 nodes" in outlook.refusals[0].reason


def test_two_points_that_span_nodes_reach_further_nodes():
    points = [
        Point(8, 1, 4_000.0),
        Point(16, 2, 7_700.0),
        Point(32, 4, 14_900.0),
    ]

    outlook = project(points, [64], gpus_per_node=8)

    assert [projection.world_size for projection in outlook.projections] == [64]
    assert outlook.refusals == ()


def test_measured_sizes_are_passed_over_and_gaps_are_to_be_measured():
    points = [Point(1, 1, 500.0), Point(4, 1, 1_900.0)]

    outlook = project(points, [1, 2, 4], gpus_per_node=8)

    assert outlook.projections == ()
    assert [refusal.world_size for refusal in outlook.refusals] == [2]
    assert "Also measure 2" in outlook.refusals[0].reason
