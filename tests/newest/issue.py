"""Keeps one issue about the newest packages: opened, brought up to date, closed.

    python -m tests.newest.issue LOWEST

After a scheduled run, with what ``gh`` needs to know of the repository. LOWEST is what
became of `make test-lowest`: ``success`` or another word. The standard library is
enough, and ``gh``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.newest.result import Result

__all__ = ["TITLE", "Issue", "body", "steps"]

TITLE = "Tests fail with other versions of packages than the lock's"
_FOLDER = Path("build/newest")
_MOST_LETTERS = 60_000
"""GitHub takes 65,536."""
_NO_RESULT = "The tests with the newest packages ended before there was a result."


@dataclass(frozen=True)
class Issue:
    """An open issue."""

    number: int
    body: str


def steps(
    result: Result | None, lowest: str, issue: Issue | None, run: str = ""
) -> Iterator[tuple[list[str], str]]:
    """Yield the arguments of each command of ``gh issue``, and the text that it reads.

    Parameters
    ----------
    result
        Of the newest packages; None if there is none.
    lowest
        What became of the tests with the lowest versions.
    issue
        The one that is open.
    run
        Address of the run's page.
    """
    text = body(result, lowest, run)
    passed = result is not None and result.state == "passed" and lowest == "success"
    if passed and issue is not None:
        yield ["comment", str(issue.number), "--body-file", "-"], text
        yield ["close", str(issue.number)], ""
    elif not passed and issue is None:
        yield ["create", "--title", TITLE, "--body-file", "-"], text
    elif not passed and issue is not None:
        yield ["edit", str(issue.number), "--body-file", "-"], text
        # Who follows the issue is told of a comment, and not of an edit.
        if _headlines(text) != _headlines(issue.body):
            yield ["comment", str(issue.number), "--body-file", "-"], _headlines(text)


def body(result: Result | None, lowest: str, run: str = "") -> str:
    """Return the issue's text: the answers, then the table and where it comes from."""
    headline = _NO_RESULT if result is None else result.headline
    lines = [headline, _lowest(lowest), ""]
    if result is not None:
        _, *table = result.lines()
        lines += ["````", *table, "````"] if table else []
        lines += [f"{result.at}, commit {result.commit}, Python {result.python}."]
    lines += ["`make test-newest` and `make test-lowest` run these tests."]
    text = "\n".join(lines)
    if len(text) > _MOST_LETTERS:
        text = f"{text[:_MOST_LETTERS]}\n````\n(shortened)"
    return f"{text}\n{run}".rstrip() + "\n"


def _lowest(outcome: str) -> str:
    if outcome == "success":
        return "All tests pass with the lowest versions that pyproject.toml allows."
    return f"The tests with the lowest versions ended with: {outcome}."


def _headlines(text: str) -> str:
    return "\n".join(text.splitlines()[:2])


def _gh(*arguments: str, text: str = "") -> str:
    argv = ["gh", "issue", *arguments]
    done = subprocess.run(
        argv, input=text, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def _open_issue() -> Issue | None:
    fields = ["--json", "number,title,body"]
    # Not one that somebody else has given this title.
    own = ["--state", "open", "--app", "github-actions", "--limit", "1000"]
    listed = json.loads(_gh("list", *own, *fields))
    found = [
        Issue(one["number"], one["body"]) for one in listed if one["title"] == TITLE
    ]
    return min(found, key=lambda one: one.number, default=None)


def _run_page(variables: Mapping[str, str]) -> str:
    names = ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    if not all(name in variables for name in names):
        return ""
    server, repository, number = (variables[name] for name in names)
    return f"{server}/{repository}/actions/runs/{number}"


def main(lowest: str) -> None:
    """Do what there is to do, and say it."""
    result = Result.read(_FOLDER)
    for arguments, text in steps(result, lowest, _open_issue(), _run_page(os.environ)):
        print(f"gh issue {' '.join(arguments)}")
        print(_gh(*arguments, text=text), end="")


if __name__ == "__main__":
    main(sys.argv[1])
