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
