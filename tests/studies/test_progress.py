"""What a study shows while it runs."""

from __future__ import annotations

from types import SimpleNamespace

from nbkit.studies.progress import Progress


def test_the_time_left_counts_runs_and_not_what_comes_between_them(monkeypatch, capsys):
    clock = SimpleNamespace(now=0.0)
    time = SimpleNamespace(monotonic=lambda: clock.now)
    monkeypatch.setattr("nbkit.studies.progress.time", time)
    monkeypatch.setattr("nbkit.studies.progress.result", lambda run: "finished")
    progress = Progress("demo", 4)

    clock.now += 600  # it waits for an idle machine
    progress.start("one")
    clock.now += 10
    progress.end(None)
    clock.now += 60
    progress.start("two + three")
    clock.now += 20
    progress.end(None, "two")
    progress.end(None, "three")

    progress.expect(["two + three", "two + three"], 25)  # the limit comes before
    progress.start("two + three")
    clock.now += 5
    progress.end(None)

    lines = [one for one in capsys.readouterr().out.splitlines() if "finished" in one]
    assert lines == [
        "[1/4] one: finished (10 s; about 30 seconds left)",
        "[2/4] two: finished (20 s; about 30 seconds left)",
        "[2/4] three: finished (20 s; about 30 seconds left)",
        "[3/4] two + three: finished (5 s; about 5 seconds left)",
    ]
