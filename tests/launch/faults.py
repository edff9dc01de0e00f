"""Each fault that a run must survive or name, as one round; used by tests and soak."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.launch.supervision.leftovers import processes_of_run
from nbkit.store.record import RunState
from tests.waiting import hang_limit, patient, wait_until

Make = Callable[..., ExperimentConfig]
DETECTED_WITHIN_SECONDS = 10


@dataclass(frozen=True)
class Outcome:
    """How a round ended."""

    state: RunState
    cause: dict
    metrics: list[dict]
    seconds: float
    """From when the fault could be noticed until the run was over."""


def rank_raises(make: Make) -> Outcome:
    run = nbkit.launch(make(model="raises", gpus=2, steps=1000))
    run.wait(patient(120), raise_on_failure=False)
    return outcome(run, _last_step_at(run))


def rank_is_killed(make: Make) -> Outcome:
    run = _running(make(model="slow", gpus=2, steps=10_000))
    began = time.time()
    os.kill(rank_pid(run, 1), signal.SIGKILL)
    return outcome(run.wait(patient(120), raise_on_failure=False), began)


def rank_crashes(make: Make) -> Outcome:
    run = nbkit.launch(make(model="crashes", gpus=2, steps=1000))
    run.wait(patient(120), raise_on_failure=False)
    return outcome(run, _last_step_at(run))


def rank_hangs(make: Make) -> Outcome:
    config = make(model="sleeps", gpus=2, steps=1000)
    # Its clock runs while the ranks import torch.
    config = config.replace(hang_timeout_seconds=hang_limit(10))
    run = nbkit.launch(config)
    run.wait(patient(120), raise_on_failure=False)
    # A rank that stands still is not a fault before the limit.
    return outcome(run, _last_step_at(run) + run.config.hang_timeout_seconds)


def supervisor_is_killed(make: Make) -> Outcome:
    run = _running(make(model="slow", gpus=2, steps=10_000))
    began = time.time()
    os.kill(run.record["supervisor"]["pid"], signal.SIGKILL)
    return outcome(run.wait(patient(120), raise_on_failure=False), began)


def ranks_ignore_sigterm(make: Make) -> Outcome:
    # The plug-in's model shuts its ears when it is built: the request comes later.
    run = _running(make(model="stubborn", steps=10_000))
    began = time.time()
    run.stop(grace_seconds=1)
    return outcome(run, began)


def owner_group_is_killed(make: Make) -> Outcome:
    """The process that launched the run ends with its whole group, as kernels do."""
    config = make(model="slow", steps=10_000)
    code = (
        "import nbkit, sys, signal\n"
        "config = nbkit.ExperimentConfig.from_json(sys.argv[1])\n"
        "run = nbkit.launch(config, on_owner_exit='stop')\n"
        "print(run.run_id, flush=True)\n"
        "signal.pause()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, config.to_json()],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as owner:
        assert owner.stdout is not None
        run = nbkit.attach(owner.stdout.readline().strip())
        wait_until(run.metrics, "a first step")
        began = time.time()
        os.killpg(owner.pid, signal.SIGKILL)
    return outcome(run.wait(patient(120), raise_on_failure=False), began)


def _running(config: ExperimentConfig) -> nbkit.Run:
    run = nbkit.launch(config)
    wait_until(lambda: len(run.metrics()) >= 3, "three steps", 120)
    return run


def rank_pid(run: nbkit.Run, rank: int) -> int:
    """Return the pid of a rank of the first attempt."""
    started = next(e for e in run.events if e["event"] == "ranks_started")
    return started["pids"][rank]


def _last_step_at(run: nbkit.Run) -> float:
    """Return when the last step before a fault of the model itself ended."""
    return run.metrics()[-1]["t"]


def outcome(run: nbkit.Run, began: float) -> Outcome:
    """Return how a run ended, once no process is left; `began` is a Unix time."""
    seconds = time.time() - began
    wait_until(lambda: not processes_of_run(run.paths), "no process left")
    return Outcome(run.state, run.cause or {}, run.metrics(), seconds)
