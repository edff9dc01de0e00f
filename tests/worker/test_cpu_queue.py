"""A thread that is ready to run while another process has its CPU waits: it counts."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

from nbkit.worker import metrics_log
from nbkit.worker.metrics_log import MeasuredCounts
from nbkit.worker.usage import cpu_queue_seconds
from tests.waiting import wait_until


@contextlib.contextmanager
def burner_on_our_only_cpu():
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    try:
        # A test that starts a process may end here, where none may be started.
        burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
        try:
            yield
        finally:
            burner.kill()
            burner.wait()
    finally:
        os.sched_setaffinity(0, cpus)


def test_time_without_a_cpu_that_others_have_counts():
    before = cpu_queue_seconds()
    assert before is not None

    with burner_on_our_only_cpu():
        wait_until(
            lambda: sum(range(100_000)) and cpu_queue_seconds() > before + 0.05,
            "this thread has waited for its CPU",
        )


def test_waiting_during_a_pause_does_not_count(monkeypatch):
    waited = iter([1.0, 1.5, 7.0, 7.25])
    monkeypatch.setattr(metrics_log, "cpu_queue_seconds", lambda: next(waited))
    monkeypatch.setattr(metrics_log, "cpu_seconds", lambda: 0.0)
    window = MeasuredCounts()
    assert window.to_dict()["cpu_queue_seconds"] is None

    window.open()
    with window.paused():
        pass
    window.close()
    window.close()

    assert window.cpu_queue_seconds == 0.5 + 0.25


def test_what_the_host_did_is_counted_beside_it_and_not_during_a_pause(monkeypatch):
    busy, clock = iter([10.0, 13.0, 40.0, 41.0]), iter([1.0, 3.0, 20.0, 21.0])
    monkeypatch.setattr(metrics_log, "host_cpu_seconds", lambda: next(busy))
    monkeypatch.setattr(metrics_log.time, "monotonic", lambda: next(clock))
    window = MeasuredCounts()

    window.open()
    with window.paused():
        pass
    window.close()

    assert (window.host_cpu_seconds, window.counted_seconds) == (4.0, 3.0)
    assert {"host_cpu_seconds", "counted_seconds"} <= window.to_dict().keys()
