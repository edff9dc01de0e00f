"""Tests that were unsteady lately are repeated, and one that fails makes it fail."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime, timedelta

import psutil
import pytest

from tests.second_look import STEADY_DAYS
from tests.unsteady import TIMES, busy_processes, repeat
from tests.waiting import wait_until

TEST = "tests/launch/test_toys.py::test_late"


@pytest.fixture
def notes(tmp_path):
    """Return a file that notes a test twice of late, and another too long ago."""
    now = datetime.now(UTC)
    noted = [(TEST, STEADY_DAYS - 1), (TEST, 1), (f"{TEST}_before", STEADY_DAYS + 1)]
    path = tmp_path / "flakes.jsonl"
    with path.open("w") as file:
        for test, days in noted:
            row = {"test": test, "time": (now - timedelta(days=days)).isoformat()}
            file.write(f"{json.dumps(row)}\n")
    return path


class Runs:
    """Takes the place of runs, of which some fail."""

    def __init__(self, failing=(), code=pytest.ExitCode.TESTS_FAILED, said="why"):
        self.failing, self.code, self.said = failing, code, said
        self.tests = []

    def __call__(self, test):
        self.tests.append(test)
        code = self.code if len(self.tests) in self.failing else pytest.ExitCode.OK
        return subprocess.CompletedProcess([test], code, self.said)


def test_a_test_that_was_unsteady_lately_runs_fifty_times(notes, capsys):
    runs = Runs()

    assert repeat(notes, runs) == 0
    assert runs.tests == [TEST] * 50
    assert capsys.readouterr().out == f"test-unsteady: {TEST} failed 0 of 50 times\n"


def test_one_failure_is_enough_and_all_are_counted(notes, capsys):
    runs = Runs(failing={3, 50})

    assert repeat(notes, runs) == 1
    assert len(runs.tests) == TIMES
    said = capsys.readouterr().out
    assert f"{TEST} failed, time 3:\nwhy\n" in said
    assert said.endswith(f"{TEST} failed 2 of 50 times\n")


@pytest.mark.parametrize("is_there", [True, False])
def test_where_none_was_unsteady_nothing_runs(tmp_path, capsys, is_there):
    notes = tmp_path / "flakes.jsonl"
    if is_there:
        notes.touch()
    runs = Runs()

    assert repeat(notes, runs) == 0
    assert runs.tests == []
    assert "no test was unsteady within 14 days" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["", "file or directory "])
def test_a_test_that_is_gone_has_not_failed(notes, capsys, what):
    said = f"no tests ran\nERROR: {what}not found: {TEST}\n(no match in any of ...)\n"
    runs = Runs({1}, pytest.ExitCode.USAGE_ERROR, said)

    assert repeat(notes, runs) == 0
    assert runs.tests == [TEST]
    assert "is no longer there" in capsys.readouterr().out


def test_a_test_that_cannot_be_imported_has_failed(notes):
    said = f"ImportError: not found: it\nERROR: found no collectors for {TEST}\n"

    assert repeat(notes, Runs({1}, pytest.ExitCode.USAGE_ERROR, said)) == 1


def test_processes_are_busy_meanwhile():
    with busy_processes() as processes:
        for process in processes:
            times = psutil.Process(process.pid).cpu_times
            wait_until(lambda times=times: times().user > 0.1, "a busy process")
    assert [process.returncode for process in processes] == [-9, -9]
