"""What a plug-in logs stands beside the steps, and takes the place of none of them."""

from __future__ import annotations

import errno
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

import pytest
from tensorboard.backend.event_processing.plugin_event_accumulator import (
    EventAccumulator,
)
from torch import nn

import nbkit
from nbkit.errors import ConfigError, RunError
from nbkit.store.heartbeat import Phase
from nbkit.store.metrics import read_json_lines
from nbkit.store.paths import RunPaths
from nbkit.store.progress import progress
from nbkit.worker import data, models
from nbkit.worker import rank_context as context
from nbkit.worker.load import load
from nbkit.worker.metrics_log import MetricsLog
from nbkit.worker.rank import Rank
from nbkit.worker.step_clock import StepTimes
from nbkit.worker.tensorboard import TensorBoard
from nbkit.worker.train import train
from tests.launch.conftest import plugins, small, store
from tests.training import go_on_here, train_here

__all__ = ["plugins", "small", "store"]


@pytest.fixture
def rank(tmp_path):
    yield Rank(RunPaths(tmp_path), 0, 0, 1, 1, 0, None)
    context.log_with(None)


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


def test_tensorboard_of_a_resumed_attempt(tmp_path, monkeypatch):
    for attempt, steps in enumerate([range(1, 7), range(4, 9)]):
        # Files are sorted by name, which begins with the second.
        monkeypatch.setattr("time.time", lambda begin=1e9 + attempt: begin)
        board = TensorBoard(Rank(RunPaths(tmp_path), 0, 0, 1, 1, attempt, None))
        board.write({"beside": 1.0}, 0, beside_steps=True)
        for step in steps:
            board.write({"loss": attempt}, step)
        board.close()

    events = EventAccumulator(str(RunPaths(tmp_path).tensorboard)).Reload()

    assert [event.step for event in events.Tensors("loss")] == [*range(1, 9)]
    assert len(events.Tensors("beside")) == 2


def test_a_number_that_could_not_be_written_for_a_moment_is_written(
    rank, log, monkeypatch
):
    monkeypatch.setattr("nbkit.reading.PAUSE_SECONDS", 0.0)
    write, errors = os.write, [OSError(errno.EIO, os.strerror(errno.EIO))]

    def fail_once(fd, data):
        if errors:
            raise errors.pop()
        return write(fd, data)

    monkeypatch.setattr(os, "write", fail_once)
    nbkit.log({"spread": 2}, step=1)

    assert [line["step"] for line in read_json_lines(rank.paths.metrics)] == [1]


def test_step_and_loss_of_the_run_stay_those_of_its_training(rank, log):
    log.steps([StepTimes(1, 0, 0.5, 0.1, 2.0, 0.0, 0.0, 0.0, 0.0)])
    nbkit.log({"spread": 2.0}, step=2)

    found = progress(rank.paths.metrics)
    assert (found["step"], found["loss"]) == (1, 0.5)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"loss": 1.0}, r"'loss'.*task='train' logs this name itself. Use "),
        ({"spread": "wide"}, "spread='wide' is not a number"),
    ],
)
def test_what_cannot_stand_there_is_refused(log, values, said):
    with pytest.raises(ConfigError, match=said):
        nbkit.log(values)


class _Logs(nn.Module):
    """Logs in every pass, and counts them."""

    def __init__(self, outputs):
        super().__init__()
        self.linear = nn.Linear(3 * 32 * 32, outputs)
        self.passes = 0

    def forward(self, images):
        self.passes += 1
        nbkit.log({"passes": self.passes})
        return self.linear(images.flatten(1))


def test_log_of_a_model_once_in_a_resumed_run(small, monkeypatch):
    def build(config, outputs):
        nbkit.log({"outputs": outputs})
        return _Logs(outputs)

    monkeypatch.setattr(models, "build", build)
    run = train_here(small(steps=8), stop_at=(5, Phase.DATA))

    go_on_here(run)

    made, *logged = run.metrics("log")
    steps = list(range(1, 9))
    assert (made["step"], made["values"]) == (0, {"outputs": 1000})
    assert [line["step"] for line in logged] == steps
    assert [line["step"] for line in run.metrics()] == steps


@pytest.mark.usefixtures("process_as_before")
@pytest.mark.parametrize("task", [train, load])
def test_a_loader_logs_as_soon_as_it_is_made(small, rank, monkeypatch, task):
    made = data.load

    def logs(*given):
        nbkit.log({"loaders": 1})
        return made(*given)

    monkeypatch.setattr(data, "load", logs)

    task(rank, small(task=task.__name__, steps=3))

    found = [it for it in read_json_lines(rank.paths.metrics) if it["kind"] == "log"]
    assert [line["values"] for line in found] == [{"loaders": 1}]


@pytest.mark.parametrize("whose", ["training", "function"])
def test_a_loading_process_is_refused_and_learns_where_to_log(
    rank, monkeypatch, whose, small
):
    if whose == "training":
        recorder = MetricsLog(rank, small(), 8)
    else:
        recorder = context.Context(rank, small(), None)
        monkeypatch.setattr(context, "context", lambda: recorder)
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as loading:
        logged = loading.submit(nbkit.log, {"images": 1})

    with pytest.raises(RunError, match=r"a fork of rank 0\. Call it in the rank"):
        logged.result()
    recorder.close()
