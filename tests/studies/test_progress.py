"""What a study shows while it runs."""

from __future__ import annotations

from types import SimpleNamespace

from nbkit.studies.progress import Progress
from tests.clocks import PlayedTime


def ended(seconds, state="finished"):
    """Return a run that took so long."""
    times = {
        "started": "2026-01-01T00:00",
        "ended": f"2026-01-01T00:00:{seconds:06.3f}",
    }
    return SimpleNamespace(record={"state": state, "time": times})


def test_the_time_left_counts_runs_and_not_what_comes_between_them(monkeypatch, capsys):
    clock = PlayedTime(monkeypatch, "nbkit.studies.progress")
    monkeypatch.setattr("nbkit.studies.progress.result", lambda run: "finished")
    progress = Progress("demo", 4)

    clock.seconds += 600  # it waits for an idle machine
    progress.start("one")
    clock.seconds += 10
    progress.end(ended(9.6))  # 0.4 s to launch it
    clock.seconds += 60
    progress.start("two + three")
    clock.seconds += 20
    progress.end(ended(19.6), "two")
    progress.end(ended(19.6), "three")

    progress.expect(["two + three", "two + three"], 25)  # the limit comes before
    progress.start("two + three")
    clock.seconds += 5
    progress.end(ended(4.6, "failed"))  # says nothing of the next
    progress.places = 2
    progress.expect(["one", "one", "two + three"])
    progress.start("one")
    clock.seconds += 2
    progress.end(ended(1.6, "failed"))

    lines = [one for one in capsys.readouterr().out.splitlines() if "finished" in one]
    assert lines == [
        "[1/4] one: finished (10 s; about 30 seconds left)",
        "[2/4] two: finished (20 s; about 30 seconds left)",
        "[2/4] three: finished (20 s; about 30 seconds left)",
        "[3/4] two + three: finished (5 s; about 20 seconds left)",
        "[4/6] one: finished (2 s; about 19 seconds left)",
    ]
