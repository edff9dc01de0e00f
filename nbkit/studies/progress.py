"""Progress of a study, in a terminal and in a notebook.

In a notebook one line is overwritten in place while a run continues, and every run that
ended leaves a line of plain text. Each overwrite is a message to papermill, which
saves the notebook only when it hears something.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence

from nbkit.launch.run import Run
from nbkit.launch.run_progress import (
    IN_PLACE_SECONDS,
    RunPosition,
    line_in_place,
    plain,
    result,
)
from nbkit.statistics import duration_in_words
from nbkit.store.record import iso
from nbkit.studies.durations import StartTimes
from nbkit.visible import visible

_LINE_SECONDS = 5.0
"""Between two lines in a terminal."""


class Progress:
    """Shows how far a study has come."""

    def __init__(
        self,
        title: str,
        total: int,
        *,
        quiet: bool = False,
        times: StartTimes | None = None,
    ) -> None:
        self._title = title
        self._total = total
        self._quiet = quiet
        self._number = 0
        self._label = ""
        self._position = RunPosition()
        self._times = times or StartTimes()
        self._arms: Sequence[str] = ()
        self._expected: Sequence[str] = ()
        self._most_seconds = math.inf
        self._began = self._run_began = time.monotonic()
        self._begun: dict[str, tuple[int, float]] = {}
        self._shown_at = 0.0
        self._line = None if quiet else line_in_place()
        self.places = 1
        """Number of concurrent starts."""
        self.answer = ""
        """After the last round, in a sentence."""

    def expect(self, arms: Sequence[str], most_seconds: float = math.inf) -> None:
        """Set the arms of all coming starts, and their time limit."""
        self._total = self._number + len(arms)
        self._expected, self._most_seconds = arms, most_seconds

    def start(self, label: str) -> None:
        """Say which run comes now."""
        self._number += 1
        self._label = label
        self._arms = self._expected or [label, *[""] * (self._total - self._number)]
        self._position = RunPosition()
        self._run_began = time.monotonic()
        self._begun[label] = self._number, self._run_began
        self._shown_at = 0.0
        self._show("starting")

    def poll(self, run: Run) -> None:
        """Show the progress of the run periodically."""
        self._position.read(run)
        period = _LINE_SECONDS if self._line is None else IN_PLACE_SECONDS
        if time.monotonic() - self._shown_at >= period:
            self._show(self._position.words(run))

    def beside(self, labels: Sequence[str]) -> None:
        """Show the concurrent runs periodically."""
        period = _LINE_SECONDS if self._line is None else IN_PLACE_SECONDS
        if labels and time.monotonic() - self._shown_at >= period:
            self._label = " + ".join(labels)
            self._show(f"{len(labels)} running")

    def end(self, run: Run, label: str | None = None, arm: str | None = None) -> None:
        """Leave a line about a run that ended; the arm, if not that of the last one."""
        self._label = label or self._label
        number, began = self._begun.get(self._label, (self._number, self._run_began))
        # By start: several that started together end here one by one.
        seconds = time.monotonic() - began
        self._times.take(self._arms[0] if arm is None else arm, [run.record])
        if not self._quiet:
            print_line(f"{self._head(number)}: {result(run)} ({self._time(seconds)})")

    def say(self, sentence: str) -> None:
        """Leave a line between two runs; an empty one leaves none."""
        if sentence and not self._quiet:
            print_line(sentence)

    def show_answer(self, answer: Callable[[], str]) -> None:
        """Print the answer of the finished runs."""
        if not self._quiet:
            self.answer = answer()
            self.say(self.answer)

    def to_dict(self) -> dict[str, str | None]:
        """Return JSON values for the sidebar."""
        return {"expected_end": self._expected_end, "answer": self.answer}

    @property
    def _expected_end(self) -> str | None:
        """When all starts will have ended, in ISO 8601; None before one has."""
        if self._times.total(self._arms) is None:
            return None
        return iso(time.time() + self._left_seconds(0.0))

    def close(self) -> None:
        """Say that all is done."""
        seconds = time.monotonic() - self._began
        runs = "1 run" if self._number == 1 else f"{self._number} runs"
        text = f"{self._title}: {runs} in {seconds:.0f} s"
        if self._line is not None:
            self._line.update(plain(text), raw=True)
        elif not self._quiet:
            print_line(text)

    def _head(self, number: int | None = None) -> str:
        return f"[{number or self._number}/{self._total}] {self._label}"

    def _time(self, seconds: float) -> str:
        """Return how long this start has taken, and all of them will take."""
        left = self._left_seconds(seconds)
        rest = f"; about {duration_in_words(left)} left" if left >= 2 else ""
        return f"{seconds:.0f} s{rest}"

    def _left_seconds(self, seconds: float) -> float:
        """Return how long all starts take, of which the last began so long ago."""
        this = max((self._times.total(self._arms[:1]) or 0.0) - seconds, 0.0)
        others = self._times.total(self._arms[1:]) or 0.0
        left = max(this, (this + others) / self.places)
        return min(left, self._most_seconds - seconds)

    def _show(self, text: str) -> None:
        self._shown_at = time.monotonic()
        seconds = self._shown_at - self._run_began
        line = f"{self._head()}: {text} ({self._time(seconds)})"
        if self._line is not None:
            self._line.update(plain(f"{self._title} {line}"), raw=True)
        elif not self._quiet:
            print_line(line)


def print_line(line: str) -> None:
    """Print a line at once, with control characters escaped."""
    sys.stdout.write(f"{visible(line)}\n")
    sys.stdout.flush()
