"""The metric of a study, without runs."""

from __future__ import annotations

import pytest

from nbkit.studies.metric import Metric

TIMED = "tokens/s tok_s it/s fps dt Throughput MFU energy_joules step_ms elapsed"
UNTIMED = "val_loss bits/step steps val/score tokens_seen top1_accuracy"


@pytest.mark.parametrize("name", TIMED.split())
def test_metric_is_timed(name):
    assert Metric(name, "lower", 0.0).is_timed


@pytest.mark.parametrize("name", UNTIMED.split())
def test_metric_is_not_timed(name):
    assert not Metric(name, "lower", 0.0).is_timed


@pytest.mark.parametrize(
    ("better", "new", "margin", "is_discarded"),
    [
        ("lower", 2.31, 0.0, True),
        ("lower", 2.31, 0.02, False),
        ("lower", 2.36, 0.02, True),
        ("higher", 2.24, 0.02, True),
        ("higher", 2.27, 0.02, False),
    ],
)
def test_metric_discards_what_is_worse_by_the_margin(better, new, margin, is_discarded):
    metric = Metric("loss", better, margin, discard_floors=5.0)

    floors = metric.floors_worse([new, new + 1e-5], [2.3, 2.30001])

    assert (floors is not None) == is_discarded
