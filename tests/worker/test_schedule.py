"""Learning rates at the steps where something happens."""

import pytest

from nbkit.config import ExperimentConfig
from nbkit.worker.schedule import learning_rate

STEPS_PER_EPOCH = 10
TOTAL = 100


def rate(step, **fields):
    config = ExperimentConfig(learning_rate=2.0, epochs=10, **fields)
    return learning_rate(config, step, STEPS_PER_EPOCH, TOTAL)


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 0.1), (9, 1.0), (18, 1.9), (19, 2.0), (20, 2.0)]
)
def test_the_rate_rises_linearly_to_its_peak(step, expected):
    warmed = rate(step, learning_rate_warmup_epochs=2.0, schedule="constant")

    assert warmed == pytest.approx(expected)


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 2.0), (25, 1.7071), (50, 1.0), (100, 0.0)]
)
def test_cosine_falls_to_zero(step, expected):
    assert rate(step, schedule="cosine") == pytest.approx(expected, abs=1e-4)


def test_a_schedule_begins_behind_the_warmup():
    fields = {"learning_rate_warmup_epochs": 2.0, "schedule": "cosine"}

    assert rate(20, **fields) == pytest.approx(2.0)
    assert rate(60, **fields) == pytest.approx(1.0)
    assert rate(100, **fields) == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("power", "step", "expected"),
    [(2.0, 0, 2.0), (2.0, 50, 0.5), (1.0, 50, 1.0), (2.0, 100, 0.0)],
)
def test_polynomial_falls_to_zero_with_its_power(power, step, expected):
    fallen = rate(step, schedule="polynomial", polynomial_power=power)

    assert fallen == pytest.approx(expected)


@pytest.mark.parametrize(
    ("step", "expected"), [(29, 2.0), (30, 1.0), (59, 1.0), (60, 0.5), (99, 0.5)]
)
def test_step_multiplies_at_its_epochs(step, expected):
    stepped = rate(step, schedule="step", step_epochs=(3.0, 6.0), step_factor=0.5)

    assert stepped == pytest.approx(expected)


def test_a_run_shorter_than_its_warmup_never_reaches_the_peak():
    config = ExperimentConfig(
        learning_rate=2.0, steps=5, warmup_steps=1, learning_rate_warmup_epochs=1.0
    )

    rates = [learning_rate(config, step, STEPS_PER_EPOCH, 5) for step in range(5)]

    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])


@pytest.mark.parametrize(("step", "expected"), [(0, 2.0), (50, 0.575), (100, 0.1)])
def test_a_polynomial_falls_to_its_end(step, expected):
    found = rate(step, schedule="polynomial", polynomial_end=0.1)

    assert found == pytest.approx(expected)
