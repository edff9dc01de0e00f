"""The second look at tests for which time ran out: toys that fail, in a repository."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_timeout

from tests.second_look import STEADY_DAYS, says_that_time_ran_out, touched_rooms

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
NOTES = "tests/flakes.jsonl"

ONCE = """
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
STAYS = """
def test_stays():
    there = before("stays")
    wait_until(lambda: there, "no process left", 0)
"""
HANGS = """
def test_hangs():
    there = before("hangs")
    print("rank 1 hangs in step 3")
    wait_until(lambda: there, "a state", 0)
"""
BREAKS = "raise RuntimeError"

IGNORED = "/*\n!/nbkit/\n!/tests/\n__pycache__/\n"

Toys = Callable[..., pytest.RunResult]


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=toys", "-c", "user.email=toys@localhost")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def change(folder: Path, path: str, text: str) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", path)


@pytest.fixture
def toys(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Toys:
    """Return a runner of toys in one room, after a change of another room."""
    paths = [str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    # Others only take time to load.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "tests.second_look")
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")]:
        monkeypatch.delenv(name)
    git(pytester.path, "init", "--quiet", "--initial-branch=main")
    pytester.path.joinpath(".gitignore").write_text(IGNORED)
    pytester.path.joinpath("pytest.ini").write_text("[pytest]")
    change(pytester.path, "nbkit/widgets/form.py", "")

    def run(*tests: str, options: tuple[str, ...] = ()) -> pytest.RunResult:
        path = pytester.path / "tests/launch/test_toys.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text("".join([ONCE, *tests]))
            # The last commit is the change, and another one.
            change(pytester.path, "nbkit/widgets/form.py", "changed = True")
            change(pytester.path, "nbkit/widgets/view.py", "changed = True")
        looks = ("-p", "no:cacheprovider", f"--second-look={NOTES}")
        return pytester.runpytest_subprocess(*looks, *options, "tests")

    return run


def notes(pytester: pytest.Pytester) -> list[dict[str, object]]:
    path = pytester.path / NOTES
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def stays_red(result: pytest.RunResult, why: str) -> None:
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"second look: *{why}*"])


@pytest.mark.parametrize("processes", [(), ("-p", "xdist", "--numprocesses=2")])
def test_a_test_that_is_late_once_is_unsteady_and_noted(toys, pytester, processes):
    result = toys(LATE_ONCE.format(""), options=processes)

    assert result.ret == pytest.ExitCode.OK
    assert result.outlines[-1] == (
        "second look: unsteady, and passed 5 times alone: "
        f"tests/launch/test_toys.py::test_late_once; commit {NOTES}"
    )
    [row] = notes(pytester)
    assert row["test"] == "tests/launch/test_toys.py::test_late_once"
    assert row["said"].endswith(" s for: a state")
    assert len(row["commit"]) == 40
    assert row["load_per_cpu"] >= 0


def test_a_test_that_is_unsteady_again_within_two_weeks_stays_red(toys, pytester):
    row = {"test": "tests/launch/test_toys.py::test_late_once"}
    now = datetime.now(UTC)
    path = pytester.path / NOTES
    path.parent.mkdir()

    row["time"] = (now - timedelta(days=STEADY_DAYS - 1)).isoformat()
    path.write_text(f"{json.dumps(row)}\n")
    stays_red(toys(LATE_ONCE.format("")), "was unsteady within 14 days: fix it")
    assert len(notes(pytester)) == 1

    row["time"] = (now - timedelta(days=STEADY_DAYS + 1)).isoformat()
    path.write_text(f"{json.dumps(row)}\n")
    (pytester.path / "late ").unlink()
    assert toys().ret == pytest.ExitCode.OK
    assert len(notes(pytester)) == 2


@pytest.mark.parametrize(
    ("tests", "why"),
    [
        ([ALWAYS_LATE], "test_always_late failed alone, time 1"),
        ([LATE_ONCE.format(""), WRONG_ONCE], "in *wrong_once it was not time that ran"),
        ([LATE_ONCE.format(n) for n in range(4)], "4 tests failed, 3 at most may"),
        ([STAYS], "test_stays is about a hang, or about the end of processes"),
        ([HANGS], "test_hangs is about a hang, or about the end of processes"),
    ],
    ids=["always late", "a wrong value", "four", "a process stays", "a hang"],
)
def test_what_may_be_a_defect_stays_red(toys, pytester, tests, why):
    stays_red(toys(*tests), why)
    assert notes(pytester) == []


def test_a_test_in_a_room_that_the_change_touches_stays_red(toys, pytester):
    git(pytester.path, "switch", "--quiet", "--create", "other")
    change(pytester.path, "nbkit/launch/run.py", "")
    change(pytester.path, "nbkit/widgets/form.py", "later = True")

    # What is tested is all that is not in main.
    stays_red(toys(LATE_ONCE.format("")), "touches the room of *test_late_once")
    assert notes(pytester) == []


def test_of_other_failures_and_of_none_it_says_nothing(toys):
    first = toys(WRONG_ONCE)
    second = toys()

    assert (first.ret, second.ret) == (1, 0)
    assert "second look" not in first.stdout.str() + second.stdout.str()


def test_where_not_every_test_has_run_there_is_no_second_look(toys, pytester):
    change(pytester.path, "tests/launch/test_broken.py", BREAKS)
    options = ("-p", "xdist", "--numprocesses=1", "--continue-on-collection-errors")
    result = toys(LATE_ONCE.format(""), options=options)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "second look" not in result.stdout.str()


def message(raises: Callable[[], object]) -> str:
    with pytest.raises(BaseException) as caught:  # noqa: PT011
        raises()
    return caught.exconly()


def _raise(error: BaseException) -> None:
    raise error


def test_a_failure_that_says_so_is_told_from_one_that_does_not():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        late = [
            lambda: socket.create_server(("127.0.0.1", port)),
            lambda: pytest.fail(pytest_timeout.PYTEST_FAILURE_MESSAGE % 300.0),
            lambda: _raise(subprocess.TimeoutExpired(["true"], 5)),
            lambda: _raise(TimeoutError("run x is running after 120 s")),
            lambda: _raise(AssertionError("waited 60 s for: a first step")),
        ]
        wrong = [
            lambda: _raise(AssertionError("assert 'Timeout' in 'waited 60 s for: it'")),
            lambda: _raise(ValueError("TimeoutError: 5 is not a time")),
            lambda: pytest.fail("left behind: thread 'lazy'"),
        ]

        assert all(says_that_time_ran_out(message(it)) for it in late)
    assert not any(says_that_time_ran_out(message(it)) for it in wrong)


def test_all_that_a_push_to_main_brings_is_the_change(tmp_path, monkeypatch):
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    change(tmp_path, "nbkit/errors.py", "")
    argv = ["git", "rev-parse", "HEAD"]
    before = subprocess.check_output(argv, cwd=tmp_path, text=True).strip()
    change(tmp_path, "nbkit/launch/run.py", "")
    change(tmp_path, "nbkit/widgets/form.py", "")
    assert touched_rooms(tmp_path) == {"widgets"}

    monkeypatch.setenv("NBKIT_BASE", before)
    assert touched_rooms(tmp_path) == {"launch", "widgets"}
    # As of a branch that is new, and where there was no push.
    for unknown in ("0" * 40, ""):
        monkeypatch.setenv("NBKIT_BASE", unknown)
        assert touched_rooms(tmp_path) == {"widgets"}


def test_rooms_are_those_of_changed_files_and_documents_belong_to_none(
    tmp_path,
):
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    change(tmp_path, "nbkit/errors.py", "")
    assert touched_rooms(tmp_path) == {"every room"}  # there is nothing before

    change(tmp_path, "nbkit/launch/run.py", "")
    assert touched_rooms(tmp_path) == {"launch"}
    for name in ("README.md", "tests/flakes.jsonl", "tests/widgets/README.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert touched_rooms(tmp_path) == {"launch"}
    for name in ("labextension/src/panel.ts", "notebooks/scaling.ipynb"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert touched_rooms(tmp_path) == {"browser", "launch", "notebooks"}
    (tmp_path / "tests/conftest.py").touch()
    assert "every room" in touched_rooms(tmp_path)
