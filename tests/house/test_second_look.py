"""The second look at tests for which time ran out, with toys that fail."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import pytest_timeout

from tests.second_look import says_that_time_ran_out

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]

TOYS = """
from pathlib import Path
from tests.waiting import wait_until

def before(name):
    there = Path(name).exists()
    Path(name).touch()
    return there
"""
LATE_ONCE = """
def test_late_once{0}():
    there = before("late {0}")
    wait_until(lambda: there, "a state", 0)
"""
ALWAYS_LATE = """
def test_always_late():
    wait_until(lambda: False, "a state", 0)
"""
WRONG_ONCE = """
def test_wrong_once():
    assert before("wrong")
"""


@pytest.fixture
def toys(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Return a runner of toys."""
    paths = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    # Others only take time to load.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "tests.second_look")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
        monkeypatch.delenv(name)

    def run(*tests: str, options: tuple[str, ...] = ()) -> pytest.RunResult:
        pytester.makepyfile(test_toys="".join([TOYS, *tests]))
        looks = ("-p", "no:cacheprovider", "--second-look")
        return pytester.runpytest_subprocess(*looks, *options, "test_toys.py")

    return run


@pytest.mark.parametrize("processes", [(), ("-p", "xdist", "--numprocesses=2")])
def test_second_look_names_a_test_that_was_late_once(toys, processes):
    result = toys(LATE_ONCE.format(""), options=processes)

    words = "ran out of time, then passed 3 times alone: test_toys.py::test_late_once"
    assert result.ret == pytest.ExitCode.OK
    assert result.outlines[-2:] == [
        f"second look: {words}",
        f"::warning title=Unsteady tests::{words}",
    ]


@pytest.mark.parametrize(
    ("tests", "words"),
    [
        ([ALWAYS_LATE], "test_always_late failed alone, time 1"),
        ([LATE_ONCE.format(""), WRONG_ONCE], "none, other tests have failed too"),
        ([LATE_ONCE.format(n) for n in range(4)], "none, other tests"),
    ],
    ids=["always late", "a wrong value", "four"],
)
def test_second_look_leaves_defects_red(toys, tests, words):
    result = toys(*tests)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"second look: *{words}*"])


@pytest.mark.parametrize(
    ("message", "is_late"),
    [
        (f"Failed: {pytest_timeout.PYTEST_FAILURE_MESSAGE % 300.0}", True),
        ("subprocess.TimeoutExpired: Command '['true']' timed out", True),
        ("TimeoutError: run x is running after 120 s", True),
        ("AssertionError: waited 60 s for: a first step", True),
        ("OSError: [Errno 98] Address already in use", True),
        ("AssertionError: assert 'Timeout' in 'waited 60 s for: it'", False),
        ("ValueError: TimeoutError: 5 is not a time", False),
        ("Failed: left behind: thread 'lazy'", False),
    ],
)
def test_second_look_knows_a_late_test_by_its_message(message, is_late):
    assert says_that_time_ran_out(message) == is_late
