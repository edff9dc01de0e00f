"""How many steps a run without a given length has, by the times of its steps."""

from __future__ import annotations

import math
from itertools import cycle, repeat

import pytest

import nbkit
from nbkit.config import ExperimentConfig
from nbkit.live.run import LiveRun
from nbkit.worker.duration import Duration, is_stable, window_steps
from nbkit.worker.step_clock import StepTimes
from tests.launch.conftest import plugins, small, store

__all__ = ["plugins", "small", "store"]


def finished(step, seconds):
    return [StepTimes(step, 0, 1.0, 0.1, seconds, 0.0, 0.0, 0.0, 0.0)]


def drive(times, config=None, late=0):
    """Return the measured times of a rank that learns of proposals some steps later."""
    length = Duration(config or ExperimentConfig(), 1_000)
    proposals = [0] * late
    start, step, done = None, 0, []
    while step < length.total_steps:
        step += 1
        done.append(next(times))
        length.take(finished(step, done[-1]))
        proposals.append(length.window_steps)
        if length.opens_window(step, proposals[-1 - late]):
            start = step
    assert step == length.total_steps
    return done[start:], done[:start], length


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("seconds", [1 / 256, 1 / 16, 1 / 4])
def test_duration_even_steps(seconds, late):
    measured, warmup, length = drive(repeat(seconds), late=late)

    assert length.ended_by == "time"
    assert len(measured) == max(20, 6 / seconds)
    # Eleven steps, or a second after the first.
    assert len(warmup) == max(11, 1 / seconds + 1) + late


def test_duration_slow_steps():
    measured, warmup, _ = drive(repeat(0.7))
    assert (len(measured), len(warmup)) == (20, 11)

    # 30 s are less than 20 steps, and less than 3.
    assert len(drive(repeat(4.0))[0]) == 7
    measured, warmup, _ = drive(repeat(50.0))
    assert (len(measured), len(warmup)) == (3, 10)


def test_duration_slowing_steps():
    # Fed from a queue that was filled in advance, then at the pace of the disk.
    times = iter([0.02] * 100 + [0.3] * 1_000)

    measured, _, _ = drive(times)

    assert 6 <= math.fsum(measured) < 6 + 0.3
    assert len(measured) < 6 / 0.02 / 2


def test_duration_a_step_that_hangs_ends_the_window():
    times = iter([0.2] * 12 + [31.0] + [0.2] * 1_000)

    measured, _, _ = drive(times)

    assert len(measured) == 3
    assert math.fsum(measured) < 32


def test_duration_bursts():
    burst = [0.01] * 7 + [0.93]

    measured, warmup, _ = drive(cycle(burst))

    assert 5.999 < math.fsum(measured) < 6 + math.fsum(burst)
    assert len(measured) >= 20
    assert len(warmup) <= 2 * len(burst)


def test_duration_warmup_waits_for_a_stable_rate():
    falling = [30.0] + [0.5 * 0.9**number for number in range(25)]
    times = iter(falling + [0.03] * 1_000)

    measured, warmup, _ = drive(times)

    assert set(measured) == {0.03}
    assert len(warmup) > len(falling)


def test_duration_warmup_has_an_end():
    unstable = [5.0, *(0.1 if number // 5 % 2 else 0.2 for number in range(1_000))]

    assert not is_stable(unstable[:200], 10)
    assert 30 <= math.fsum(drive(iter(unstable))[1][1:]) < 30.3
    assert not is_stable(unstable, 2_000)


@pytest.mark.parametrize(
    ("fields", "total", "ended_by"),
    [({"steps": 30}, 30, "steps"), ({"epochs": 2}, 2_000, "epochs")],
)
def test_duration_given(fields, total, ended_by):
    config = ExperimentConfig(**fields, warmup_steps=4)

    measured, warmup, length = drive(repeat(50.0), config)

    assert (len(warmup), len(measured)) == (4, total - 4)
    assert (length.ended_by, length.scheduled_steps) == (ended_by, total)
    assert length.agreed_steps is None


def test_window_steps_by_mean():
    assert window_steps(1, 0.1) == 60
    assert window_steps(100, 5.0) == 120
    assert window_steps(10, 9.0) == 20
    assert window_steps(10, 20.0) == 15
    assert window_steps(2, 60.0) == 3
    assert window_steps(5, 0.0) == 6_000_000


def test_two_ranks_without_a_length_end_at_the_same_step(small):
    # Its steps sleep: quick ones would compute for all of the time.
    config = small(gpus=2, model="slow").replace(steps=None, warmup_steps=3)
    assert config.has_time_window

    run = nbkit.launch(config).wait()

    lines, worker = run.metrics(), run.worker
    measured = [line for line in lines if not line["warmup"]]
    assert worker["ended_by"] == run.summary.ended_by == "time"
    assert [rank["steps"] for rank in worker["ranks"]] == [len(measured)] * 2
    assert lines[-1]["total_steps"] == len(lines)
    assert len(measured) >= 20
    assert {line["learning_rate"] for line in lines} == {config.learning_rate}
    assert run.summary.first_step_seconds == lines[0]["step_time_seconds"]
    # The end is agreed one step after rank 0 has seen 6 s.
    seconds = math.fsum(line["step_time_seconds"] for line in measured)
    longest = max(line["step_time_seconds"] for line in measured)
    assert 6 - longest <= seconds <= 30 + longest
    live = LiveRun(run)
    live.read()
    assert live.snapshot()["numbers"]["total_steps"] == len(lines)
