"""What waiting for devices costs, and how soon the next run has them."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

import nbkit
from nbkit.launch.devices.pool_folder import POOL_VARIABLE
from nbkit.launch.run import Run
from nbkit.store.record import RunState
from nbkit.telemetry.cpus import usable_cpus
from tests.bench.rows import Row, row, spread

QUEUED = 50
ROUNDS = 10
WINDOW_SECONDS = 10


def queue_rows() -> list[Row]:
    """Return memory of queued supervisors, and the time of a handover."""
    before = os.environ.get(POOL_VARIABLE)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[POOL_VARIABLE] = str(Path(folder) / "pool")
        try:
            return [_queued_memory(), _handover()]
        finally:
            if before is None:
                del os.environ[POOL_VARIABLE]
            else:
                os.environ[POOL_VARIABLE] = before


def _wait_for_ever() -> None:
    import time

    time.sleep(3600)


def _launch() -> Run:
    every_cpu = max(1, int(usable_cpus()))
    return nbkit.launch(_wait_for_ever, device="cpu", gpus=every_cpu)


def _queued_memory() -> Row:
    runs = [_launch() for _ in range(QUEUED + 1)]
    waiting = runs[1:]
    _wait(lambda: all(run.state is RunState.QUEUED for run in waiting))
    supervisors = [psutil.Process(run.record["supervisor"]["pid"]) for run in waiting]
    cpu = _cpu_seconds(supervisors)
    time.sleep(WINDOW_SECONDS)
    percent = (_cpu_seconds(supervisors) - cpu) / WINDOW_SECONDS * 100
    mebibytes = [process.memory_info().rss / 2**20 for process in supervisors]
    for run in reversed(runs):
        run.stop(grace_seconds=0)
    return row(
        "memory of a queued run",
        max(mebibytes),
        "MiB",
        35,
        f"resident, the largest of {QUEUED} at once ({spread(mebibytes)}); all of them "
        f"together take {percent:.1f} % of a core",
    )


def _handover() -> Row:
    seconds = []
    for _ in range(ROUNDS):
        holder, following = _launch(), _launch()
        _wait(lambda run=holder: run.state is RunState.RUNNING)
        _wait(lambda run=following: run.state is RunState.QUEUED)
        began = time.time()
        os.kill(holder.record["supervisor"]["pid"], signal.SIGKILL)
        _wait(lambda run=following: bool(_started_at(run)))
        seconds.append(_started_at(following) - began)
        following.stop(grace_seconds=0)
        holder.stop()
    return row(
        "kill -9 of a holder to the start of the next run",
        max(seconds),
        "s",
        1.0,
        f"slowest of {ROUNDS} ({spread(seconds)}), to its ranks' being started",
    )


def _started_at(run: Run) -> float:
    """Return the modification time of the first file of its ranks, or 0."""
    times = [path.stat().st_mtime for path in run.paths.logs.glob("0/0/stdout.log")]
    return min(times, default=0.0)


def _cpu_seconds(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _wait(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.02)
