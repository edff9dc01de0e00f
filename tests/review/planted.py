"""Runs with something planted that bounds them, as one round; for tests and soak.

They are real: on CPUs, as long as it takes to see it.
"""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.launch.run import Run
from nbkit.review.causes import Diagnosis
from nbkit.telemetry.cpus import usable_cpus

Make = Callable[..., ExperimentConfig]

BURN = "while True: pass"


def starved_by_naive_loader(make: Make, folder: Path) -> Diagnosis:
    """Decode one image after the other, where computing takes next to nothing."""
    config = make(
        gpus=1,
        data=_photographs(folder),
        loader="naive",
        batch_size_per_gpu=8,
        steps=12,
    )
    return _diagnosed(config)


def starved_by_one_worker(make: Make, folder: Path) -> Diagnosis:
    """Decode ahead, with fewer hands than it takes."""
    config = make(
        gpus=1,
        data=_photographs(folder),
        loader="torch",
        loader_config={"num_workers": 1},
        batch_size_per_gpu=8,
        steps=40,
    )
    return _diagnosed(config)


def rank_that_computes_longer(make: Make, folder: Path) -> Diagnosis:
    """Let rank 1 work for longer than rank 0 in each step."""
    return _diagnosed(make(gpus=2, model="lags", steps=60))


def rank_whose_cpu_is_shared(make: Make, folder: Path) -> Diagnosis:
    """Bind each rank to CPUs of its own, and burn on those of rank 1, thrice each."""
    cpus = sorted(os.sched_getaffinity(0))
    theirs = cpus[len(cpus) // 2 :]
    config = make(
        gpus=2,
        model="resnet20",
        batch_size_per_gpu=16,
        steps=30,
        cpu_binding="cores",
    )
    with _burning(3 * len(theirs), theirs):
        return _diagnosed(config)


def pinned_to_one_core(make: Make, folder: Path) -> Diagnosis:
    """Launch from where only one CPU may be used."""
    config = make(gpus=1, model="resnet20", batch_size_per_gpu=32, steps=20)
    with _pinned(1):
        return _diagnosed(config)


def two_ranks_on_one_core(make: Make, folder: Path) -> Diagnosis:
    """Share the one CPU between two ranks."""
    config = make(gpus=2, model="resnet20", batch_size_per_gpu=16, steps=20)
    with _pinned(1):
        return _diagnosed(config)


def tiny_batch(make: Make, folder: Path) -> Diagnosis:
    """Update five million weights by their norms, for every two images."""
    # Half of each step: a fifth, in few steps, is lost where others take the CPUs.
    config = make(
        gpus=1,
        num_classes=100_000,
        optimizer="lars",
        batch_size_per_gpu=2,
        steps=60,
    )
    return _diagnosed(config)


def others_on_the_cpus(make: Make, folder: Path) -> Diagnosis:
    """Burn on every CPU that may be used: a quota holds for the burners too."""
    config = make(gpus=1, model="resnet20", batch_size_per_gpu=32, steps=20)
    with _burning(2 * math.ceil(usable_cpus())):
        return _diagnosed(config)


def slow_exchange(make: Make, folder: Path) -> Diagnosis:
    """Exchange the gradients of five million weights for one image a rank."""
    config = make(gpus=2, num_classes=100_000, batch_size_per_gpu=1, steps=40)
    return _diagnosed(config)


PLANTED = {
    "input": (starved_by_naive_loader, starved_by_one_worker),
    "slow-rank": (rank_that_computes_longer, rank_whose_cpu_is_shared),
    "cpu-allocation": (pinned_to_one_core,),
    "few-cpus": (two_ranks_on_one_core,),
    "batch": (tiny_batch,),
    "other-cpu-processes": (others_on_the_cpus,),
    "communication": (slow_exchange,),
}
"""By the code that has to be named first."""

OF_THE_HOST = frozenset({"other-cpu-processes", "no-cpu", "few-cpus", "cpu-allocation"})
"""Where others compute too, or CPUs have a quota, they are there indeed."""


def named_first(found: Diagnosis, code: str) -> bool:
    """Tell whether a code is the first, but for what the host has without planting."""
    named = [one.code for one in found if one.code not in OF_THE_HOST - {code}]
    return named[:1] == [code]


def healthy(make: Make, folder: Path) -> Diagnosis:
    """Train without a fault on all CPUs."""
    config = make(gpus=1, model="resnet20", batch_size_per_gpu=96, steps=16)
    return _diagnosed(config)


def healthy_ranks(make: Make, folder: Path) -> Diagnosis:
    """Train without a fault on two ranks."""
    config = make(gpus=2, model="resnet20", batch_size_per_gpu=64, steps=20)
    return _diagnosed(config)


def _diagnosed(config: ExperimentConfig) -> Diagnosis:
    run: Run = nbkit.launch(config).wait(300)
    return run.diagnose()


def _photographs(folder: Path) -> str:
    """Write images that take some milliseconds to decode."""
    root = folder / "photographs"
    if not root.exists():
        pixels = np.random.default_rng(0)
        for number in range(64):
            path = root / f"class {number % 2}" / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            noise = pixels.integers(0, 256, (600, 800, 3), dtype=np.uint8)
            Image.fromarray(noise).save(path, quality=90)
    return str(root)


@contextlib.contextmanager
def _burning(count: int, cpus: Collection[int] = ()) -> Iterator[None]:
    """Keep CPUs busy with processes that are ended behind it."""
    where = f"import os; os.sched_setaffinity(0, {sorted(cpus)!r})\n" if cpus else ""
    command = [sys.executable, "-c", where + BURN]
    # A session each: the scheduler may share CPUs between sessions, not processes.
    burners = [subprocess.Popen(command, start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
        for burner in burners:
            burner.wait()


@contextlib.contextmanager
def _pinned(count: int) -> Iterator[None]:
    """Let this process, and what it starts, use so many CPUs only."""
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus)
