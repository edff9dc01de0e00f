"""Runs tests by an environment's Python; which fail is read from JUnit's XML."""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ITSELF", "Suite"]

ITSELF = "pytest itself"
"""In place of a test where pytest ends before it can name one."""

_PROCESSES = 4
_LETTERS = 200
"""Of what a failed test said."""


@dataclass(frozen=True)
class Suite:
    """Some tests of a checkout."""

    root: Path
    """Of the checkout."""
    folder: Path
    """Where XML is written."""
    tests: Sequence[str] = ()
    """Files, folders or tests; all of them where it is empty."""

    def run(self, python: Path) -> dict[str, str]:
        """Run all; return what failed, and the first line of what each said."""
        options = ["--durations=20", f"--numprocesses={_PROCESSES}"]
        return self._run(python, "suite", *options, *self.tests)

    def again(self, python: Path, failed: Collection[str]) -> list[str]:
        """Run some of the failed tests by another Python; return which fail there."""
        if ITSELF in failed:
            found = self._run(python, "again", "--collect-only", "-q", *self.tests)
            return sorted(set(found) & set(failed))
        options = [f"--numprocesses={min(_PROCESSES, len(failed))}"]
        functions = {one.partition("[")[0] for one in failed}
        files = {one.partition("::")[0] for one in failed}
        # A test that only the newest packages have is unknown; what holds it is not.
        for tests in (failed, functions, files):
            found = self._run(python, "again", *options, *sorted(tests))
            if ITSELF not in found:
                return sorted(set(found) & set(failed))
        return sorted(failed)

    def _run(self, python: Path, name: str, *arguments: str) -> dict[str, str]:
        xml = self.folder / f"{name}.xml"
        xml.unlink(missing_ok=True)
        argv = [python, "-m", "pytest", f"--junitxml={xml}", *arguments]
        code = subprocess.run(argv, cwd=self.root, stdin=subprocess.DEVNULL).returncode
        found = _failed(xml, self.root) if code and xml.exists() else {}
        if code and not found:
            return {ITSELF: f"ended with exit code {code} and named no test"}
        return found


def _failed(xml: Path, root: Path) -> dict[str, str]:
    found = {}
    for case in ElementTree.parse(xml).iter("testcase"):
        for outcome in case:
            if outcome.tag in ("failure", "error"):
                words = outcome.get("message") or outcome.text or ""
                first = words.strip().partition("\n")[0][:_LETTERS]
                found[_test(case, root)] = first
    return found


def _test(case: ElementTree.Element, root: Path) -> str:
    """Return a test as pytest takes it; a file that could not be imported is one."""
    dotted, name = case.get("classname", ""), case.get("name", "")
    parts = (dotted or name).split(".")
    for number in range(len(parts), 0, -1):
        file = Path(*parts[:number]).with_suffix(".py")
        if (root / file).is_file():
            inside = [*parts[number:], name] if dotted else []
            return "::".join([file.as_posix(), *inside])
    return f"{dotted}.{name}"
