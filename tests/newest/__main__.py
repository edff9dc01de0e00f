"""The suite with the newest packages; what fails names the package that it is.

    python -m tests.newest [TEST...]

`make test-newest` runs it in a small environment: .venv is not used. It writes into
build/newest: freeze.txt, the output of ``pip freeze``; suite.xml, which pytest writes;
and result.json.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from nbkit.packages import newest_tested
from tests.newest.blame import blame
from tests.newest.environment import CannotInstallError, Environment, changes
from tests.newest.result import Result
from tests.newest.suite import Suite

__all__ = ["examine"]

ROOT = Path(__file__).parents[2]


def examine(
    result: Result,
    newest: Environment,
    lock: Callable[[], Environment],
    suite: Suite,
) -> None:
    """Run tests with the newest packages, and find out what makes some of them fail.

    Parameters
    ----------
    result
        Gets what became of it, and is written at each step: hours may be lost.
    newest
        With the newest packages.
    lock
        Makes an environment of the lock; called where tests fail.
    suite
        The tests.
    """
    result.failed = suite.run(newest.python)
    result.state = "failed" if result.failed else "passed"
    result.write(suite.folder)
    if not result.failed:
        return
    # One that passes now would be laid at the door of every package.
    lasting = result.failed_again = suite.again(newest.python, result.failed)
    result.write(suite.folder)
    if not lasting:
        return
    environment = lock()
    fail_with_lock = set(suite.again(environment.python, lasting))
    passes = [test for test in lasting if test not in fail_with_lock]
    result.passes_with_lock = passes
    result.write(suite.folder)
    if not passes:
        return
    with environment.changing():
        for trial in blame(
            result.changed, environment, lambda: suite.again(environment.python, passes)
        ):
            result.trials.append(trial)
            result.write(suite.folder)


def _made(name: str) -> Environment:
    """Return an environment of the Makefile's, made or renewed."""
    done = subprocess.run(
        ["make", "--no-print-directory", f"setup-{name}"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    sys.stderr.write(done.stderr)
    if done.returncode:
        lines = [one for one in done.stderr.splitlines() if not one.startswith("make")]
        raise CannotInstallError(lines[-1] if lines else "make said nothing")
    return Environment(ROOT / f".venv-{name}")


def main(tests: list[str]) -> int:
    """Print the table; return 1 unless all passed."""
    folder = ROOT / "build/newest"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    result = Result(platform.python_version(), commit.strip(), now)
    try:
        newest = _made("newest")
        (folder / "freeze.txt").write_text(newest.freeze())
        result.changed = changes(newest_tested(), newest.versions())
        suite = Suite(ROOT, folder, tests)
        examine(result, newest, lambda: _made("blame"), suite)
    except CannotInstallError as error:
        result.said = str(error)
    result.write(folder)
    print("", *result.lines(), sep="\n")
    return int(result.state != "passed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
