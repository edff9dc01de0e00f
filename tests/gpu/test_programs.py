"""The programs beside a slot's checks, on the CPU."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import reference
import torch

from nbkit.config import ExperimentConfig
from nbkit.store.stored_runs import create_run_folder
from nbkit.worker import seeding, train
from nbkit.worker.finiteness import FiniteWatch
from nbkit.worker.step_clock import StepClock
from tests.launch.conftest import install_plugins
from tests.worker.conftest import process_as_before
from tests.worker.plain_loop import plain_loop

__all__ = ["process_as_before"]

HERE = Path(__file__).parent
REVERTED = (
    "import runpy, sys; from nbkit.worker import optimizers; "
    "optimizers._start_momentum = lambda optimizer: None; "
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A training in fp16 of a model that is done in a moment."""
    install_plugins(monkeypatch)
    monkeypatch.setenv("NBKIT_HOME", str(tmp_path))
    return ExperimentConfig(
        model="convnet",
        num_classes=10,
        image_size=16,
        batch_size_per_gpu=8,
        device="cpu",
        precision="fp16",
        learning_rate=0.01,
        steps=6,
        warmup_steps=2,
        tensorboard=False,
    )


def rank(config, *arguments, program=(str(HERE / "probed_rank.py"),)):
    paths = create_run_folder(config)
    numbers = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    subprocess.run(
        [sys.executable, "-P", *program, str(paths.root), *arguments],
        env={**os.environ, **numbers, "LOCAL_WORLD_SIZE": "1"},
        check=True,
    )
    return json.loads((paths.root / "probe-0.json").read_bytes())


@pytest.mark.usefixtures("process_as_before")
def test_the_plain_loop_starts_with_a_scale_that_overflows(tiny):
    answer = reference.train(tiny, torch.device("cpu"))

    assert answer["first_scale"] >= 65536
    assert answer["skipped"][0] == 1
    assert len(answer["losses"]) == 6


@pytest.mark.usefixtures("process_as_before")
@pytest.mark.parametrize(
    "fields",
    [
        {"optimizer": "adamw", "learning_rate": 1e-3},
        {"optimizer": "lars", "learning_rate": 1.0},
        {"gradient_accumulation_steps": 2, "batch_size_per_gpu": 4},
    ],
    ids=["adamw", "lars", "accumulation"],
)
def test_the_plain_loop_knows_optimizers_and_accumulation(tiny, fields):
    config = tiny.replace(precision="fp32", **fields)

    answer = reference.train(config, torch.device("cpu"))

    other = reference.train(tiny.replace(precision="fp32"), torch.device("cpu"))
    assert answer["losses"] == pytest.approx(plain_loop(config).losses, rel=1e-4)
    assert answer["losses"][-1] != pytest.approx(other["losses"][-1], rel=1e-4)


def test_momentum_that_was_never_initialised_is_named(tiny):
    seen = rank(
        *(tiny, "--poison", "--start-scale=1e30"),
        program=("-c", REVERTED, str(HERE / "probed_rank.py")),
    )

    assert seen["first_update_skipped"] is True
    assert seen["state_not_zero"] == ["momentum_buffer"]


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (train.wrap_ddp, ["raw_model", "config", "rank", "device", "clock"]),
        (train.create_process_group, ["rank", "config", "device"]),
        (train.final_barrier, ["group"]),
        (StepClock.begin, ["self", "step", "epoch"]),
        (FiniteWatch.__init__, ["self", "model"]),
        (seeding.variables_against, ["environment"]),
    ],
)
def test_what_a_rank_that_is_looked_into_hangs_on_is_there(function, parameters):
    assert list(inspect.signature(function).parameters) == parameters
