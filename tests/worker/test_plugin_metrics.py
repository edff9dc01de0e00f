"""What a plug-in logs stands beside the steps, and takes the place of none of them."""

from __future__ import annotations

import pytest

import nbkit
from nbkit.errors import ConfigError
from nbkit.store.heartbeat import Phase
from nbkit.store.metrics import read_json_lines
from nbkit.store.paths import RunPaths
from nbkit.store.progress import progress
from nbkit.worker import context
from nbkit.worker.metrics_log import MetricsLog
from nbkit.worker.rank import Rank
from nbkit.worker.step_clock import StepTimes


@pytest.fixture
def rank(tmp_path, monkeypatch):
    monkeypatch.setattr(context, "_recorder", None)
    return Rank(RunPaths(tmp_path / "run"), 0, 0, 1, 1, 0, None)


@pytest.fixture
def log(rank):
    log = MetricsLog(rank, nbkit.ExperimentConfig(tensorboard=False), 8)
    yield log
    log.close()


def test_numbers_belong_to_the_step_that_is_being_computed(rank, log):
    rank.beat(7, Phase.COMPUTE)
    nbkit.log({"spread": 2})
    nbkit.log({"spread": float("nan")}, step=3)

    lines = read_json_lines(rank.paths.metrics)
    assert [(line["step"], line["values"]["spread"]) for line in lines] == [
        (7, 2),
        (3, None),
    ]


def test_step_and_loss_of_the_run_stay_those_of_its_training(rank, log):
    log.steps([StepTimes(1, 0, 0.5, 0.1, 2.0, 0.0, 0.0, 0.0, 0.0)])
    nbkit.log({"spread": 2.0}, step=2)

    found = progress(rank.paths.metrics)
    assert (found["step"], found["loss"]) == (1, 0.5)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"loss": 1.0}, r"'loss'.*task='train' records that itself; log yours by "),
        ({"spread": "wide"}, "spread='wide' is not a number"),
    ],
)
def test_what_cannot_stand_there_is_refused(log, values, said):
    with pytest.raises(ConfigError, match=said):
        nbkit.log(values)
