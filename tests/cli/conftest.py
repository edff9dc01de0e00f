"""The command as its users run it: a process of its own, in a store of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import nbkit
from tests.launch.conftest import store
from tests.studies.written_study import write_runs

__all__ = ["COMMAND", "Done", "Measured", "nbkit_command", "store", "study"]

COMMAND = (sys.executable, "-m", "nbkit")
Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="session")
def nbkit_command() -> Callable[..., Done]:
    """Return what runs `nbkit` with arguments and further environment variables."""

    def run(*arguments: object, **environment: object) -> Done:
        return subprocess.run(
            [*COMMAND, *map(str, arguments)],
            env={**os.environ, **{k: str(v) for k, v in environment.items()}},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    return run


@dataclass(frozen=True)
class Measured:
    """A study that has finished, in a store of its own."""

    home: Path
    study_id: str
    runs: tuple[nbkit.Run, ...]
    """One of each arm."""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Write two arms, a run each; only who names their store sees them."""
    home = tmp_path_factory.mktemp("study") / "store"
    fields = {"model": "resnet20", "device": "cpu", "gpus": 1, "image_size": 32}
    fields |= {"steps": 20, "warmup_steps": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NBKIT_HOME", str(home))
        arms = {
            f"batch {size}": nbkit.ExperimentConfig(**fields, batch_size_per_gpu=size)
            for size in (2, 4)
        }
        made = nbkit.Study.create("batches", arms)
        write_runs(made, {"batch 2": 100.0, "batch 4": 150.0})
        runs = tuple(run for many in made.runs_by_arm().values() for run in many)
    return Measured(home, made.study_id, runs)
