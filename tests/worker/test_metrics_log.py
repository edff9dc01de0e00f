"""What a rank counts over its steps."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
import torch

from nbkit import clock
from nbkit.config import ExperimentConfig
from nbkit.reports.energy_per_image import joules_per_image
from nbkit.review.milestones import time_to_target
from nbkit.store.record import utc_now
from nbkit.worker import metrics_log, step_clock
from nbkit.worker.metrics_log import MeasuredCounts, MetricsLog
from nbkit.worker.step_clock import StepClock
from tests.widgets.stored_run import WrittenRun

if TYPE_CHECKING:
    from nbkit.worker.rank import Rank


def test_processor_time_of_a_pause_does_not_count(monkeypatch):
    used = iter([10.0, 13.0, 100.0, 104.0])
    monkeypatch.setattr(metrics_log, "cpu_seconds", lambda: next(used))
    window = MeasuredCounts()

    with window.paused():
        pass  # not open yet: nothing is read
    window.open()
    with window.paused():
        pass
    window.close()

    assert window.cpu_seconds == (13.0 - 10.0) + (104.0 - 100.0)


def test_a_thread_that_is_left_out_has_not_waited_for_a_cpu_either(monkeypatch):
    queued = iter([5.0, 6.0, 9.0, 10.5, 20.0, 21.0])
    monkeypatch.setattr(metrics_log, "cpu_queue_seconds", lambda: next(queued))
    window = MeasuredCounts()

    window.open()
    with window.without_this_thread():
        pass
    window.close()
    with window.without_this_thread():
        pass  # closed: nothing is left out

    assert window.cpu_queue_seconds == (10.5 - 5.0) - (9.0 - 6.0)


def test_a_kernel_that_does_not_tell_of_waiting_is_taken_at_its_word(monkeypatch):
    monkeypatch.setattr(metrics_log, "cpu_queue_seconds", lambda: None)
    window = MeasuredCounts()

    window.open()
    with window.without_this_thread():
        pass
    window.close()

    assert window.cpu_queue_seconds is None


@pytest.mark.parametrize("jump_seconds", [0.0, 600.0, -20.0, -3600.0])
def test_a_clock_that_is_set_changes_no_duration(tmp_path, monkeypatch, jump_seconds):
    machine = SimpleNamespace(wall=1e9, up=500.0)
    looks = {"time": lambda: machine.wall, "monotonic": lambda: machine.up}
    monkeypatch.setattr(clock, "time", SimpleNamespace(**looks))
    monkeypatch.setattr(
        step_clock, "time", SimpleNamespace(perf_counter=looks["monotonic"])
    )
    monkeypatch.setenv(clock.CLOCK_VARIABLE, "")
    clock.start_clock()
    run = WrittenRun(tmp_path)
    run.record("finished", time={"started": utc_now(), "ended": None})
    config = ExperimentConfig(steps=20, warmup_steps=4, tensorboard=False)
    rank = SimpleNamespace(rank=0, world_size=1, attempt=0, paths=run.run.paths)
    log = MetricsLog(cast("Rank", rank), config, images_per_step=100)
    samples = [{"kind": "header"}]

    def wait(seconds):
        for _ in range(seconds):
            machine.wall, machine.up = machine.wall + 1.0, machine.up + 1.0
            gpu = {"uuid": "GPU-a", "energy_joules": 300.0 * machine.up}
            samples.append({"kind": "sample", "t": clock.now(), "gpus": [gpu]})

    wait(3)
    steps = StepClock(torch.device("cpu"))
    steps.restart()
    for number in range(1, 21):
        steps.begin(number, (number - 1) // 10)
        wait(1)
        steps.backward_done()
        steps.end(torch.tensor(1.0), 0.1)
        log.steps(steps.finished())
        if number == 12:
            machine.wall += jump_seconds
        if number % 10 == 0:
            wait(4)
            found = {"top1_accuracy": number / 25, "duration_seconds": 4.0}
            log.event("evaluation", number, epoch=number // 10, **found)
            steps.restart()
    log.close()
    path = run.run.paths.system("host")
    path.parent.mkdir()
    path.write_text("".join(json.dumps(line) + "\n" for line in samples))

    reached = time_to_target(run.run, target=0.7)

    assert [point.seconds for point in reached.curve] == [14.0, 28.0]
    assert (reached.seconds, reached.startup_seconds) == (28.0, 3.0)
    assert reached.joules == 28 * 300.0
    # From the end of step 5 on, without the evaluations.
    assert joules_per_image(run.run) == 3.0
    assert run.run.summary.images_per_second == 100.0
