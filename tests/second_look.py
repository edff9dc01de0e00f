"""A second look, after a whole run, at tests for which time ran out.

Time runs out on a busy machine, and where there is a defect. So the test runs again
alone: if it passes every time, it is unsteady. That is noted in a file that is
committed, so that everybody sees how often. Twice within `STEADY_DAYS` is a failure. A
test that got another value than it expects has failed, and so has one in whose failure
nbkit speaks of a hang or of processes that stayed.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import load

__all__ = [
    "STEADY_DAYS",
    "run_alone",
    "says_that_time_ran_out",
    "touched_rooms",
    "unsteady_tests",
]

MOST_TESTS = 3
TIMES = 5
STEADY_DAYS = 14

_TIME_RAN_OUT = re.compile(
    r"AssertionError: waited [\d.]+ s for: "
    r"|AssertionError: \w+ expected (?s:.*?)\nError: element\(s\) not found"
    r"|Failed: Timeout \(>"
    r"|(\w+\.)*\w*Timeout(Error|Expired|Exception)\b"
    r"|(\w+\.)*\w*Error: .*Address already in use"
)
"""How the message of a failure begins that says so."""

_HANGS = re.compile(r"(\b|_)(hang|hung)|left[ _]behind|processes_of_run", re.IGNORECASE)
"""In all that is told of a failure where nbkit speaks of a hang or leaves a process."""

_ENDS = re.compile(
    r"(\b|_)(ends?|ended|gone|left|stopping|orphans?|zombies?)(\b|_)", re.IGNORECASE
)
"""In the test's name, and in what the failure says, where a process has to end."""

_EVERY_ROOM = "every room"
_DOCUMENTS = {".md", ".jsonl", ".tsv"}
_ROOM_OF_TOP = {"labextension": "browser", "notebooks": "notebooks"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the file in which unsteady tests are noted."""
    parser.addoption("--second-look", type=Path, metavar="FILE", default=None)


def pytest_configure(config: pytest.Config) -> None:
    """Look in one process of several: the one that has no worker's input."""
    path = config.getoption("second_look")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_SecondLook(config, path))


class _SecondLook:
    def __init__(self, config: pytest.Config, notes: Path) -> None:
        self._root = config.rootpath
        self._notes = notes
        self._failures: dict[str, list[pytest.TestReport]] = {}
        self._loads: dict[str, float] = {}
        self._is_whole = True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure, and how busy the machine is."""
        if report.failed:
            self._failures.setdefault(report.nodeid, []).append(report)
            self._loads[report.nodeid] = round(load(), 2)

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
        is_red = session.exitstatus == pytest.ExitCode.TESTS_FAILED
        cut_short = session.shouldfail or session.shouldstop or not self._is_whole
        if is_red and not cut_short and any(map(self._ran_out, self._failures)):
            why_not = self._why_not() or self._fails_again()
            if why_not is None:
                self._note()
                session.exitstatus = pytest.ExitCode.OK
            terminal: Any = session.config.pluginmanager.get_plugin("terminalreporter")
            terminal.write_line(f"second look: {why_not or self._unsteady()}")

    def _ran_out(self, test: str) -> bool:
        messages = map(_message, self._failures[test])
        return all(map(says_that_time_ran_out, messages))

    def _why_not(self) -> str | None:
        """Return why the run stays red as it is, if it does."""
        if len(self._failures) > MOST_TESTS:
            return f"none, {len(self._failures)} tests failed, {MOST_TESTS} at most may"
        touched = touched_rooms(self._root)
        recent = unsteady_tests(self._notes)
        for test in self._failures:
            if not self._ran_out(test):
                return f"none, in {test} it was not time that ran out"
            if any(map(_is_about_an_end, self._failures[test])):
                return f"none, {test} is about a hang, or about the end of processes"
            if touched & {_room(test), _EVERY_ROOM}:
                return f"none, the change touches the room of {test}"
            if test in recent:
                return f"none, {test} was unsteady within {STEADY_DAYS} days: fix it"
        return None

    def _fails_again(self) -> str | None:
        """Run each alone, in a new process each time; return which failed."""
        for test in self._failures:
            for time in range(1, TIMES + 1):
                done = run_alone(self._root, test)
                if done.returncode:
                    return f"{test} failed alone, time {time}:\n{done.stdout}"
        return None

    def _note(self) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        head = _git(self._root, "rev-parse", "HEAD") or [""]
        self._notes.parent.mkdir(exist_ok=True)
        with self._notes.open("a", encoding="utf-8") as file:
            for test, reports in self._failures.items():
                row = {
                    "time": now,
                    "commit": head[0],
                    "test": test,
                    # Where things are on this machine concerns nobody else.
                    "said": re.sub(r"/[^\s']*/", "", _message(reports[0]))[:200],
                    "load_per_cpu": self._loads[test],
                }
                file.write(f"{json.dumps(row)}\n")

    def _unsteady(self) -> str:
        return (
            f"unsteady, and passed {TIMES} times alone: {', '.join(self._failures)}; "
            f"commit {self._notes}"
        )


def run_alone(root: Path, test: str) -> subprocess.CompletedProcess[str]:
    """Run a test in a new process; what both streams say is its stdout."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", test],
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def says_that_time_ran_out(message: str) -> bool:
    """Tell whether a failure is that, by its exception's type and message."""
    return _TIME_RAN_OUT.match(message) is not None


def _message(report: pytest.TestReport) -> str:
    """Return an exception's type and what it said."""
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(report.longrepr if crash is None else crash.message)


def _is_about_an_end(report: pytest.TestReport) -> bool:
    output = (text for _, text in report.sections)
    everything = "\n".join([report.longreprtext, *output])
    said = f"{report.nodeid}\n{_message(report)}"
    return bool(_HANGS.search(everything) or _HANGS.search(said) or _ENDS.search(said))


def unsteady_tests(notes: Path) -> set[str]:
    """Return which tests were unsteady in the last days."""
    if not notes.exists():
        return set()
    since = datetime.now(UTC) - timedelta(days=STEADY_DAYS)
    rows = map(json.loads, notes.read_text(encoding="utf-8").splitlines())
    return {r["test"] for r in rows if datetime.fromisoformat(r["time"]) > since}


def touched_rooms(root: Path) -> set[str]:
    """Return the rooms in which something differs from main.

    On main itself the change is what differs from $NBKIT_BASE, the commit before a push
    of several, or else the last commit. What belongs to no room touches every room,
    unless it is a document; so does what git cannot tell.
    """
    changed = _git(root, "diff", "--name-only", _base(root))
    new = _git(root, "ls-files", "--others", "--exclude-standard")
    if changed is None or new is None:
        return {_EVERY_ROOM}
    names = (it for it in (*changed, *new) if Path(it).suffix not in _DOCUMENTS)
    return {_room(name) for name in names}


def _base(root: Path) -> str:
    """Return the commit after which the change begins."""
    handed = os.environ.get("NBKIT_BASE", "")
    # A rewritten main does not have it, and a new one has had none.
    if _git(root, "rev-parse", "--verify", f"{handed}^{{commit}}"):
        return handed
    head = _git(root, "rev-parse", "HEAD")
    mains = (_git(root, "merge-base", "HEAD", it) for it in ("origin/main", "main"))
    base = next((it for it in mains if it is not None), head)
    return "HEAD^" if base is None or base == head else base[0]


def _room(name: str) -> str:
    """Return the room of a file or a test."""
    top, *inner = Path(name.partition("::")[0]).parts
    if top in _ROOM_OF_TOP:
        return _ROOM_OF_TOP[top]
    return inner[0] if top in ("nbkit", "tests") and len(inner) > 1 else _EVERY_ROOM


def _git(root: Path, *words: str) -> list[str] | None:
    """Return the lines that git prints, or None where it fails."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else None
