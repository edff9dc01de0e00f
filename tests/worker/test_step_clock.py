"""Where the time of a step goes; the clock is a list of moments here."""

import itertools

import pytest
import torch

from nbkit.worker import step_clock
from nbkit.worker.step_clock import StepClock


@pytest.fixture
def clock(monkeypatch):
    """A clock on which every look takes one second."""
    seconds = itertools.count()
    monkeypatch.setattr(step_clock.time, "perf_counter", lambda: float(next(seconds)))
    return StepClock(torch.device("cpu"))


def _step(clock, number):
    clock.begin(number, 0)
    clock.ask_for_batch()
    clock.got_batch()
    clock.last_bucket_ready()
    clock.backward_done()
    clock.end(torch.tensor(1.5), 0.1)


def test_a_step_lasts_from_the_end_of_the_one_before(clock):
    clock.restart()
    _step(clock, 1)
    _step(clock, 2)

    first, second = clock.finished()

    assert (first.step, second.step) == (1, 2)
    assert first.total_seconds == second.total_seconds == 5
    assert second.data_wait_seconds == 1
    assert second.communication_exposed_seconds == 1
    assert second.compute_seconds == 3
    assert second.update_seconds == 1


def test_what_happens_between_two_steps_belongs_to_neither(clock):
    clock.restart()
    _step(clock, 1)
    for _ in range(100):
        step_clock.time.perf_counter()  # An evaluation, or a checkpoint.
    clock.restart()
    _step(clock, 2)

    assert [times.total_seconds for times in clock.finished()] == [5, 5]


def test_a_step_that_is_read_late_keeps_its_own_times(clock):
    clock.restart()
    _step(clock, 1)
    clock.restart()

    [times] = clock.finished(wait=True)

    assert times.total_seconds == 5
    assert times.loss == 1.5
