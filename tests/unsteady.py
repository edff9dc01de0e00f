"""Repeats the tests that were unsteady lately, next to busy processes.

    python -m tests.unsteady

`make test-unsteady` runs it, and a workflow does so every day: the five runs of a
second look often miss a defect that fails one run in twenty.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.second_look import STEADY_DAYS, run_alone, unsteady_tests

__all__ = ["TIMES", "busy_processes", "repeat"]

ROOT = Path(__file__).parents[1]
TIMES = 50
_NUM_BUSY = 2
# Each ends with the process that has started it, however that ends.
_BUSY = """
import os
parent = os.getppid()
while os.getppid() == parent:
    pass
"""

Run = Callable[[str], subprocess.CompletedProcess[str]]


def repeat(notes: Path, run: Run) -> int:
    """Run each test that was unsteady lately `TIMES` times; return how many failed.

    Parameters
    ----------
    notes
        The file in which the second look notes unsteady tests.
    run
        Runs a test in a new process.
    """
    tests = sorted(unsteady_tests(notes))
    if not tests:
        _say(f"no test was unsteady within {STEADY_DAYS} days, so none is repeated")
    return sum(_fails(test, run) for test in tests)


def _fails(test: str, run: Run) -> bool:
    num_failures = 0
    for time in range(1, TIMES + 1):
        done = run(test)
        if _is_gone(done):
            _say(f"{test} is no longer there")
            return False
        if done.returncode:
            num_failures += 1
            _say(f"{test} failed, time {time}:\n{done.stdout}")
    _say(f"{test} failed {num_failures} of {TIMES} times")
    return num_failures > 0


def _is_gone(done: subprocess.CompletedProcess[str]) -> bool:
    """Tell whether pytest finds no such test: it has another name, or was removed."""
    says_so = re.search(r"^ERROR: (.+ )?not found: ", done.stdout, re.MULTILINE)
    return done.returncode == pytest.ExitCode.USAGE_ERROR and says_so is not None


def _say(text: str) -> None:
    # All of them take hours, and a workflow may reach its time limit.
    print(f"test-unsteady: {text}", flush=True)


@contextmanager
def busy_processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Keep two CPUs busy meanwhile."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(_NUM_BUSY):
            processes.append(subprocess.Popen([sys.executable, "-c", _BUSY]))
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def main() -> int:
    """Return 1 if a test failed."""
    with busy_processes():
        notes = ROOT / "tests/flakes.jsonl"
        return int(repeat(notes, lambda test: run_alone(ROOT, test)) > 0)


if __name__ == "__main__":
    sys.exit(main())
