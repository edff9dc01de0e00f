"""A profiler trace of a few steps, if the configuration requests one.

Right after the warm-up, one step starts the profiler, three steps are traced, and in a
further step the other ranks wait for rank 0, which writes the trace. None of the five
steps is measured.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from nbkit.config import ExperimentConfig
from nbkit.config.checks import PROFILED_STEPS
from nbkit.errors import StoreError
from nbkit.store.metrics import store_error
from nbkit.store.ownership import make_folder
from nbkit.store.record import write_json
from nbkit.worker.rank import Rank, say

_GETTING_GOING, _TRACED = 1, 3
_TOP_OPERATORS = 12


class StepProfile:
    """Traces some steps of rank 0 and writes them into the run's folder."""

    def __init__(
        self, rank: Rank, config: ExperimentConfig, device: torch.device
    ) -> None:
        self.steps = PROFILED_STEPS if config.profile else 0
        """Steps after the warm-up that do not count."""
        self._paths = rank.paths
        self._on_gpu = device.type == "cuda"
        self._begin = config.num_warmup_steps
        self._wanted = config.profile and rank.rank == 0
        self._profiler: Any = None
        self._done = 0

    def between_steps(self) -> None:
        """Continue; called before the first step of an attempt and after each."""
        if self._wanted and self._done == self._begin:
            self._start()
        elif self._profiler is not None:
            self._profiler.step()
            if self._done == self._begin + _GETTING_GOING + _TRACED:
                self._end()
        self._done += 1

    def close(self) -> None:
        """Give up on a trace that a stop has cut short; otherwise do nothing."""
        if self._profiler is not None:
            self._profiler.on_trace_ready = None
            self._end()

    def _start(self) -> None:
        activities = [ProfilerActivity.CPU]
        if self._on_gpu:
            activities.append(ProfilerActivity.CUDA)
        self._profiler = profile(
            activities=activities,
            schedule=schedule(wait=0, warmup=_GETTING_GOING, active=_TRACED, repeat=1),
            on_trace_ready=self._write,
        )
        self._profiler.start()

    def _end(self) -> None:
        self._profiler.stop()
        self._profiler = None

    def _write(self, traced: Any) -> None:
        try:
            self._write_trace(traced)
            self._write_operators(traced)
        except OSError as error:  # a training is worth more than its profile
            if not isinstance(error, StoreError):
                error = store_error(self._paths.profile, error)
            # On a full disk the log may be full, too.
            with contextlib.suppress(OSError):
                say(f"profile: {error} The run continues without the profiler.")

    def _write_trace(self, traced: Any) -> None:
        path = self._paths.profile
        make_folder(path.parent, self._paths.root)
        # Its name's end says that it is compressed.
        temporary = path.with_name(f".{path.name}")
        try:
            traced.export_chrome_trace(str(temporary))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def _write_operators(self, traced: Any) -> None:
        problem = None
        try:
            times = self_times(traced.key_averages(), on_gpu=self._on_gpu)
        except AttributeError as error:
            times = []
            problem = (
                f"torch {torch.__version__} reports operator times under unknown names "
                f"({error}); open the trace, which is complete"
            )
        top = sorted(times, reverse=True)[:_TOP_OPERATORS]
        write_json(
            self._paths.operators,
            {
                "steps": _TRACED,
                "device_type": "cuda" if self._on_gpu else "cpu",
                "problem": problem,
                "self_seconds": sum(seconds for seconds, _, _ in times),
                "operators": [
                    {"name": name, "calls": calls, "self_seconds": seconds}
                    for seconds, name, calls in top
                ],
            },
        )


def self_times(
    averages: Iterable[Any], *, on_gpu: bool
) -> list[tuple[float, str, int]]:
    """Return seconds, name and calls of what took the time; each moment counts once."""
    if on_gpu:
        return [
            (entry.self_device_time_total / 1e6, entry.key, entry.count)
            for entry in averages
            if entry.device_type.name == "CUDA" and not entry.is_user_annotation
        ]
    return [
        (entry.self_cpu_time_total / 1e6, entry.key, entry.count)
        for entry in averages
        if not entry.key.startswith("ProfilerStep")
    ]
