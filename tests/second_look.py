"""A second look, after a whole run, at tests for which time ran out.

Time runs out on a busy machine. So each of these tests runs again, alone: if it passes
every time, the run passes and its last lines name it. A test that got another value
than it expects has failed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

MOST_TESTS = 3
TIMES = 3

_TIME_RAN_OUT = re.compile(
    r"AssertionError: waited [\d.]+ s for: "
    r"|AssertionError: \w+ expected (?s:.*?)\nError: element\(s\) not found"
    r"|Failed: Timeout \(>"
    r"|(\w+\.)*\w*Timeout(Error|Expired|Exception)\b"
    r"|(\w+\.)*\w*Error: .*Address already in use"
)
"""How the message of a failure begins that says so."""


def says_that_time_ran_out(message: str) -> bool:
    """Tell whether a failure is that, by its exception's type and message."""
    return _TIME_RAN_OUT.match(message) is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the option."""
    parser.addoption("--second-look", action="store_true")


def pytest_configure(config: pytest.Config) -> None:
    """Look in one process of several: the one that has no worker's input."""
    if config.getoption("second_look") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_SecondLook())


class _SecondLook:
    def __init__(self) -> None:
        self._failures: dict[str, bool] = {}
        """By the name of the test, whether time ran out in all its phases."""
        self._is_whole = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            message = str(report.longrepr if crash is None else crash.message)
            was_late = self._failures.get(report.nodeid, True)
            is_late = was_late and says_that_time_ran_out(message)
            self._failures[report.nodeid] = is_late

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note that there are tests that could not run."""
        self._is_whole = self._is_whole and not report.failed

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object) -> None:
        """Note that a process of pytest-xdist has died, maybe with tests to run."""
        self._is_whole = self._is_whole and not error

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Look once everything has ended and the summary is printed."""
        yield
        late = [test for test, is_late in self._failures.items() if is_late]
        is_red = session.exitstatus == pytest.ExitCode.TESTS_FAILED
        cut_short = session.shouldfail or session.shouldstop or not self._is_whole
        if not late or not is_red or cut_short:
            return
        terminal: Any = session.config.pluginmanager.get_plugin("terminalreporter")
        if late != list(self._failures) or len(late) > MOST_TESTS:
            terminal.write_line("second look: none, other tests have failed too")
            return
        for test in late:
            for time in range(1, TIMES + 1):
                again = _run_alone(session, test)
                if again.returncode:
                    why = f"{test} failed alone, time {time}:\n{again.stdout}"
                    terminal.write_line(f"second look: {why}")
                    return
        session.exitstatus = pytest.ExitCode.OK
        words = f"ran out of time, then passed {TIMES} times alone: {', '.join(late)}"
        terminal.write_line(f"second look: {words}", yellow=True, bold=True)
        if "GITHUB_ACTIONS" in os.environ:
            terminal.write_line(f"::warning title=Unsteady tests::{words}")


def _run_alone(session: pytest.Session, test: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", test],
        cwd=session.config.rootpath,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
