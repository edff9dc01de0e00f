"""One issue says what fails with other versions than the lock's, until all passes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.newest.issue import TITLE, Issue, body, steps
from tests.newest.result import Result, Trial

ROOT = Path(__file__).parents[2]

GH = """#!/bin/sh
printf '%s\\n' "$*" >>"$CALLS"
case "$*" in
"issue list "*) cat "$LISTED" ;;
*) cat >>"$CALLS" ;;
esac
"""


def result(**fields) -> Result:
    return Result("3.13.1", "abc123", "2027-01-02T04:17:00+00:00", **fields)


def failed(package="cloudpickle") -> Result:
    return result(
        state="failed",
        changed={package: ["3.1.2", "3.1.3"]},
        failed={"tests/launch/test_entry.py::test_a": "assert 1 == 2"},
        passes_with_lock=["tests/launch/test_entry.py::test_a"],
        trials=[Trial([package], ["tests/launch/test_entry.py::test_a"])],
    )


def commands(*arguments) -> list[str]:
    return [" ".join(words[:2]) for words, _ in steps(*arguments)]


PASSED = result(state="passed")
OPEN = Issue(7, body(failed(), "success"))


@pytest.mark.parametrize(
    ("found", "lowest", "issue", "expected"),
    [
        (PASSED, "success", None, []),
        (PASSED, "success", OPEN, ["comment 7", "close 7"]),
        (failed(), "success", None, ["create --title"]),
        (failed(), "success", OPEN, ["edit 7"]),
        (failed("pydantic"), "success", OPEN, ["edit 7", "comment 7"]),
        (PASSED, "failure", None, ["create --title"]),
        (PASSED, "failure", OPEN, ["edit 7", "comment 7"]),
        (None, "success", None, ["create --title"]),
        (result(said="a needs b"), "success", None, ["create --title"]),
    ],
)
def test_one_issue_is_opened_brought_up_to_date_and_closed(
    found, lowest, issue, expected
):
    assert commands(found, lowest, issue) == expected


def test_the_issue_names_the_package_the_tests_and_how_to_repeat_them():
    text = body(failed(), "success", "https://forge.example/runs/1")

    assert text.startswith("1 test fails with cloudpickle 3.1.3 in place of 3.1.2.\n")
    assert "tests/launch/test_entry.py::test_a: assert 1 == 2" in text
    assert "commit abc123, Python 3.13.1" in text
    assert "`make test-newest`" in text
    assert text.endswith("https://forge.example/runs/1\n")


def test_an_issue_of_very_many_failures_stays_within_what_a_forge_takes():
    many = result(
        state="failed", changed={f"package-{n}": ["1", "2"] for n in range(9_000)}
    )

    text = body(many, "success", "https://forge.example/runs/1")

    assert len(text) < 65_536
    assert text.endswith("(shortened)\nhttps://forge.example/runs/1\n")
    assert text.count("````") == 2


def test_gh_is_told(tmp_path):
    """By the program, of the issue that has its title."""
    issues = [
        {"number": 3, "title": "Another", "body": ""},
        {"number": 7, "title": TITLE, "body": "old"},
    ]
    gh = tmp_path / "gh"
    gh.write_text(GH)
    gh.chmod(0o755)
    failed().write(tmp_path)
    (tmp_path / "build").mkdir()
    (tmp_path / "build/newest").symlink_to(tmp_path)
    calls, listed = tmp_path / "calls", tmp_path / "listed"
    listed.write_text(json.dumps(issues))

    subprocess.run(
        [sys.executable, "-m", "tests.newest.issue", "success"],
        cwd=tmp_path,
        env={
            **os.environ,
            "CALLS": str(calls),
            "LISTED": str(listed),
            "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "GITHUB_SERVER_URL": "https://forge.example",
            "GITHUB_REPOSITORY": "some/nbkit",
            "GITHUB_RUN_ID": "12",
        },
        check=True,
    )

    told = calls.read_text()
    assert told.startswith("issue list --state open --app github-actions")
    assert "issue edit 7 --body-file -\n1 test fails with cloudpickle 3.1.3" in told
    assert "https://forge.example/some/nbkit/actions/runs/12\n" in told
    assert "issue comment 7 --body-file -\n" in told
    assert "issue edit 3" not in told
