"""Learning rates at the steps where something happens."""

import pytest

from nbkit.config import ExperimentConfig
from nbkit.worker.schedule import learning_rate

STEPS_PER_EPOCH = 10
WARMUP = {"learning_rate_warmup_epochs": 2.0}
POLYNOMIAL = {"schedule": "polynomial"}
RATES = {
    "warm-up": (
        {**WARMUP, "schedule": "constant"},
        {0: 0.1, 9: 1.0, 18: 1.9, 19: 2.0, 20: 2.0},
    ),
    "cosine": ({"schedule": "cosine"}, {0: 2.0, 25: 1.7071, 50: 1.0, 100: 0.0}),
    "cosine behind a warm-up": (
        {**WARMUP, "schedule": "cosine"},
        {20: 2.0, 60: 1.0, 100: 0.0},
    ),
    "square": ({**POLYNOMIAL, "polynomial_power": 2.0}, {0: 2.0, 50: 0.5, 100: 0.0}),
    "line": ({**POLYNOMIAL, "polynomial_power": 1.0}, {50: 1.0}),
    "to an end": ({**POLYNOMIAL, "polynomial_end": 0.1}, {0: 2.0, 50: 0.575, 100: 0.1}),
    "step": (
        {"schedule": "step", "step_epochs": (3.0, 6.0), "step_factor": 0.5},
        {29: 2.0, 30: 1.0, 59: 1.0, 60: 0.5, 99: 0.5},
    ),
}


@pytest.mark.parametrize("name", RATES)
def test_learning_rate_follows_its_schedule(name):
    fields, expected = RATES[name]
    config = ExperimentConfig(learning_rate=2.0, epochs=10, **fields)

    rates = {
        step: learning_rate(config, step, STEPS_PER_EPOCH, 100) for step in expected
    }

    assert rates == pytest.approx(expected, abs=1e-4)


def test_learning_rate_of_a_run_shorter_than_its_warmup_never_reaches_the_peak():
    config = ExperimentConfig(
        learning_rate=2.0, steps=5, warmup_steps=1, learning_rate_warmup_epochs=1.0
    )

    rates = [learning_rate(config, step, STEPS_PER_EPOCH, 5) for step in range(5)]

    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
