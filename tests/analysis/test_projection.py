"""When scaling is extended, how far that can be trusted, and when it is refused."""

from __future__ import annotations

import pytest

from nbkit.analysis.projection import Point, project
from nbkit.analysis.published import published, series
from nbkit.errors import NotEnoughDataError

ANY_NODE = 10**9  # large enough that nothing is refused for crossing nodes
PUBLISHED = {
    label: [Point(row.world_size, row.nnodes, row.images_per_second) for row in members]
    for label, members in series(published()).items()
    if len(members) > 2
}


def errors_of_the_largest(points):
    """Return the interval's ends over the measured value of the largest size."""
    *smaller, largest = points
    (projection,) = project(
        smaller, [largest.world_size], gpus_per_node=ANY_NODE
    ).projections
    return (
        projection.low_images_per_second / largest.images_per_second,
        projection.high_images_per_second / largest.images_per_second,
    )


@pytest.mark.parametrize(
    ("label", "low_percent", "high_percent"),
    [
        ("Paddle PaddlePaddle 2.5.0, V100-SXM2-32GB, fp32", -3.6, 9.5),
        ("Paddle PaddlePaddle 2.5.0, V100-SXM2-32GB, fp16", -6.5, 8.9),
        (
            "Paddle NGC PyTorch (DeepLearningExamples fc9c09b), V100-SXM2-32GB, fp32, "
            "channels_first",
            -11.3,
            5.5,
        ),
        (
            "Paddle NGC PyTorch (DeepLearningExamples fc9c09b), V100-SXM2-32GB, fp16, "
            "channels_first",
            -10.2,
            10.0,
        ),
        (
            "Dell TensorFlow tf_cnn_benchmarks + Horovod, VM, A100-PCIe, "
            "precision not stated",
            -3.3,
            -0.1,
        ),
    ],
)
def test_models_miss_published_points_by_the_known_errors(
    label, low_percent, high_percent
):
    low, high = errors_of_the_largest(PUBLISHED[label])

    assert (low - 1) * 100 == pytest.approx(low_percent, abs=0.06)
    assert (high - 1) * 100 == pytest.approx(high_percent, abs=0.06)


def test_interval_holds_or_nearly_holds_every_published_series():
    misses = []
    for points in PUBLISHED.values():
        low, high = errors_of_the_largest(points)
        misses.append(max(low - 1, 1 - high, 0.0))

    # the figures that the module's introduction states
    assert len(misses) == 40
    assert sum(miss == 0 for miss in misses) == 21
    assert 0.021 < max(misses) <= 0.0225


def test_points_that_follow_a_model_are_continued_by_it():
    def rate(size):
        return size * 1_000 / (1 + 0.02 * (size - 1))

    points = [Point(size, 1, rate(size)) for size in (1, 2, 4)]

    (projection,) = project(points, [8], gpus_per_node=8).projections

    assert projection.low_images_per_second == pytest.approx(rate(8))
    assert projection.high_images_per_second > rate(8)
    assert projection.low_efficiency == pytest.approx(rate(8) / 8_000)
    assert projection.low_efficiency < projection.high_efficiency < 1


def test_perfect_scaling_is_continued_without_width():
    points = [Point(1, 1, 500.0), Point(2, 1, 1_000.0)]

    (projection,) = project(points, [8], gpus_per_node=8).projections

    assert projection.low_images_per_second == pytest.approx(4_000)
    assert projection.high_images_per_second == pytest.approx(4_000)


def test_superlinear_points_are_not_continued_into_a_promise():
    points = [Point(1, 1, 500.0), Point(2, 1, 1_100.0)]

    (projection,) = project(points, [8], gpus_per_node=8).projections

    assert projection.high_images_per_second <= 1_100 * 4


def test_cpu_points_are_never_projected():
    points = [Point(1, 1, 30.0, "cpu"), Point(2, 1, 44.0, "cpu")]

    outlook = project(points, [4, 8], gpus_per_node=8)

    assert outlook.projections == ()
    (refusal,) = outlook.refusals
    assert refusal.world_size is None
    assert "CPU processes" in refusal.reason


def test_one_gpu_count_is_not_enough():
    outlook = project([Point(1, 1, 500.0)], [2, 4], gpus_per_node=8)

    assert outlook.projections == ()
    assert "at least 2 GPU counts and 1 was measured" in outlook.refusals[0].reason


def test_one_nodes_points_do_not_reach_across_nodes():
    points = [Point(1, 1, 500.0), Point(2, 1, 980.0)]

    outlook = project(points, [4, 8, 16, 32], gpus_per_node=8)

    assert [projection.world_size for projection in outlook.projections] == [4, 8]
    assert [refusal.world_size for refusal in outlook.refusals] == [16, 32]
    assert "a node has 8" in outlook.refusals[0].reason
    assert "measure on 2 nodes" in outlook.refusals[0].reason


def test_points_that_span_nodes_reach_further_nodes():
    points = [Point(8, 1, 4_000.0), Point(16, 2, 7_600.0)]

    outlook = project(points, [32], gpus_per_node=8)

    assert [projection.world_size for projection in outlook.projections] == [32]
    assert outlook.refusals == ()


def test_measured_sizes_are_passed_over_and_gaps_are_to_be_measured():
    points = [Point(1, 1, 500.0), Point(4, 1, 1_900.0)]

    outlook = project(points, [1, 2, 4], gpus_per_node=8)

    assert outlook.projections == ()
    assert [refusal.world_size for refusal in outlook.refusals] == [2]
    assert "measure 2 too" in outlook.refusals[0].reason


def test_nothing_asked_is_nothing_answered():
    outlook = project([Point(1, 1, 30.0, "cpu")], [1], gpus_per_node=8)

    assert (outlook.projections, outlook.refusals) == ((), ())


def test_two_points_of_one_size_are_an_error():
    with pytest.raises(NotEnoughDataError, match="2 points for 1 world sizes"):
        project([Point(1, 1, 500.0), Point(1, 1, 510.0)], [2], gpus_per_node=8)


def test_a_rate_of_zero_is_an_error():
    with pytest.raises(NotEnoughDataError, match=r"images_per_second=0\.0 with 2"):
        project([Point(1, 1, 500.0), Point(2, 1, 0.0)], [4], gpus_per_node=8)
