"""The chart of accuracy against time shows every seed, those that failed too."""

from __future__ import annotations

import pytest

from nbkit.questions.time_to_accuracy.chart import accuracy_chart
from nbkit.review.milestones import CurvePoint, RecipeTimes, TimeToTarget


def trained(number, accuracies, seconds=600.0, target=0.75):
    curve = tuple(
        CurvePoint(seconds * epoch, epoch, accuracy)
        for epoch, accuracy in enumerate(accuracies, start=1)
    )
    reached = [point for point in curve if point.accuracy >= target]
    return TimeToTarget(
        run_id=f"run {number}",
        seed=number,
        target=target,
        reached=bool(reached),
        seconds=reached[0].seconds if reached else None,
        evaluation_seconds=None,
        startup_seconds=None,
        epochs=reached[0].epochs if reached else None,
        images=None,
        joules=None,
        watched_seconds=curve[-1].seconds,
        best_accuracy=max(accuracies),
        curve=curve,
    )


@pytest.mark.parametrize(
    ("seconds", "unit"), [(10.0, "seconds"), (100.0, "minutes"), (3_600.0, "hours")]
)
def test_time_has_the_unit_of_its_length(seconds, unit):
    one = RecipeTimes("sgd", (trained(0, [0.3, 0.6, 0.8], seconds=seconds),))

    assert f"({unit})" in str(accuracy_chart([one], is_cpu=False).to_dict())
