"""What a rank counts over its steps."""

from __future__ import annotations

from nbkit.worker import metrics_log
from nbkit.worker.metrics_log import Window


def test_processor_time_of_a_pause_does_not_count(monkeypatch):
    used = iter([10.0, 13.0, 100.0, 104.0])
    monkeypatch.setattr(metrics_log, "cpu_seconds", lambda: next(used))
    window = Window()

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
    window = Window()

    window.open()
    with window.without_this_thread():
        pass
    window.close()
    with window.without_this_thread():
        pass  # closed: nothing is left out

    assert window.cpu_queue_seconds == (10.5 - 5.0) - (9.0 - 6.0)


def test_a_kernel_that_does_not_tell_of_waiting_is_taken_at_its_word(monkeypatch):
    monkeypatch.setattr(metrics_log, "cpu_queue_seconds", lambda: None)
    window = Window()

    window.open()
    with window.without_this_thread():
        pass
    window.close()

    assert window.cpu_queue_seconds is None
