"""Training in the test's own process, for tests whose subject is not the process.

A rank that is alone needs no supervisor: its run has the folder that `nbkit.launch`
makes, with what rank 0 writes. Each run is spared the seconds of CPU that starting
processes and importing torch take. What a supervisor, torchrun or other ranks do is not
seen here.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist

from nbkit.config import ExperimentConfig
from nbkit.store.heartbeat import STACKS_SIGNAL, Phase
from nbkit.store.stored_runs import StoredRun, create_run_folder
from nbkit.worker import rank_context as context
from nbkit.worker.rank import Rank
from nbkit.worker.train import train

# Those that nbkit takes; pytest-timeout has another one.
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, STACKS_SIGNAL)

Moment = tuple[int, Phase]
"""A step, and what the rank does in it."""


@dataclass
class StoppedRank(Rank):
    """A rank that is asked to stop at a moment of its training."""

    stop_at: Moment | None = None

    def beat(self, step: int, phase: Phase) -> None:
        """Ask for the stop, as the signal does that a supervisor sends."""
        super().beat(step, phase)
        if (step, phase) == self.stop_at:
            self.stop_requested = True


def train_here(config: ExperimentConfig, *, stop_at: Moment | None = None) -> StoredRun:
    """Train in this process, which is then as it was before; return the run.

    Its state is that of a run which torchrun started, so that it is finished or not.
    """
    assert config.world_size == 1, "several ranks are several processes"
    run = StoredRun(create_run_folder(config).root)
    _attempt(run, 0, stop_at)
    return run


def go_on_here(run: StoredRun, *, stop_at: Moment | None = None) -> None:
    """Go on from the newest checkpoint, as a resumed run does."""
    _attempt(run, int(run.worker["attempt"]) + 1, stop_at)


def _attempt(run: StoredRun, number: int, stop_at: Moment | None) -> None:
    config = ExperimentConfig.from_json(run.paths.config.read_bytes())
    with process_kept():
        train(StoppedRank(run.paths, 0, 0, 1, 1, number, None, stop_at=stop_at), config)


@contextmanager
def process_kept() -> Iterator[None]:
    """Give back what a training in this process changes, and refuse other changes.

    Such a training has one thread: more wait for each other where tests run side by
    side, and these models are too small for two.
    """
    tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    benchmark = torch.backends.cudnn.benchmark
    deterministic = torch.are_deterministic_algorithms_enabled()
    drawn = random.getstate(), torch.get_rng_state()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    before = _settings()
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = benchmark
        if torch.are_deterministic_algorithms_enabled() != deterministic:
            torch.use_deterministic_algorithms(deterministic)
        context.log_with(None)
        random.setstate(drawn[0])
        torch.set_rng_state(drawn[1])
        after = _settings()
        torch.set_num_threads(threads)
    assert after == before


def _settings() -> dict[str, object]:
    return {
        "threads": torch.get_num_threads(),
        "default format": torch.get_default_dtype(),
        "TF32": torch.backends.cuda.matmul.allow_tf32,
        "TF32 of cuDNN": torch.backends.cudnn.allow_tf32,
        "products": torch.get_float32_matmul_precision(),
        "benchmark": torch.backends.cudnn.benchmark,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "gradients": torch.is_grad_enabled(),
        "process group": dist.is_initialized(),
        "CPU binding": os.sched_getaffinity(0),
        "signals": [signal.getsignal(one) for one in _SIGNALS],
        "blocked signals": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    }
