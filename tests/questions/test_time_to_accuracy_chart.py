"""The chart of accuracy against time shows every seed, those that failed too."""

from __future__ import annotations

import pytest

from nbkit.questions.time_to_accuracy.chart import accuracy_chart
from nbkit.reports.pictures import png
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


RECIPES = [
    RecipeTimes("sgd", (trained(0, [0.3, 0.6, 0.8]), trained(1, [0.2, 0.5, 0.7]))),
    RecipeTimes("lars", (trained(2, [0.4, 0.76]),)),
]


def rows_of(chart):
    """Return the rows of every data set of a chart."""
    layers = chart.to_dict()["layer"]
    return [layer["data"]["values"] for layer in layers if "values" in layer["data"]]


def test_every_evaluation_of_every_seed_is_a_point_of_its_line():
    chart = accuracy_chart(RECIPES, device_type="cuda")

    points = max(rows_of(chart), key=len)
    assert [(row["seed"], row["epochs"]) for row in points] == [
        *((0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (2, 1), (2, 2)),
    ]
    # Ten minutes an epoch.
    assert points[1]["time"] == pytest.approx(20.0)
    assert "minutes" in str(chart.to_dict())


def test_a_seed_that_never_got_there_has_another_mark():
    chart = accuracy_chart(RECIPES, device_type="cuda")

    ends = next(rows for rows in rows_of(chart) if "reached" in rows[0])
    assert [row["reached"] for row in ends] == [True, False, True]
    assert [row["accuracy"] for row in ends] == [0.8, 0.7, 0.76]
    marks = [layer["mark"] for layer in chart.to_dict()["layer"]]
    assert "cross" in {mark.get("shape") for mark in marks}
    assert chart.to_dict()["title"]["subtitle"].endswith(
        "sgd: 1 of 2 seeds; lars: 1 of 1 seeds"
    )


def test_it_is_drawn_and_cpus_are_said_to_be_functional():
    chart = accuracy_chart(RECIPES, device_type="cpu")

    assert chart.to_dict()["title"]["subtitle"].startswith("CPU, functional")
    assert png(chart).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("seconds", "unit"), [(10.0, "seconds"), (100.0, "minutes"), (3_600.0, "hours")]
)
def test_time_has_the_unit_of_its_length(seconds, unit):
    one = RecipeTimes("sgd", (trained(0, [0.3, 0.6, 0.8], seconds=seconds),))

    assert f"({unit})" in str(accuracy_chart([one], device_type="cuda").to_dict())
