"""How long tests take: written by a whole run, and what splits the work of the next.

The processes of pytest-xdist take the longest files first, so that none is alone at the
end; a file that takes longer than `PIECE_SECONDS` is shared by them, unless what its
tests share is itself slow to make.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

PIECE_SECONDS = 60.0
SLOW_FIXTURE_SECONDS = 3.0
LEAST_SECONDS = 1.0
"""What is kept of shorter tests in the repository: nothing."""

OWN, KEPT = "build/durations.tsv", "tests/durations.tsv"
HEADER = "seconds\tphase\ttest\n"

Durations = Mapping[tuple[str, str], float]
"""Seconds by phase (setup, call, teardown) and test."""


def read(root: Path) -> Durations:
    """Return what the last whole run here took; before there was one, what is kept."""
    path = next((root / name for name in (OWN, KEPT) if (root / name).is_file()), None)
    if path is None:
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    rows = (line.split("\t", 2) for line in lines)
    return {(phase, test): float(seconds) for seconds, phase, test in rows}


def write(path: Path, durations: Durations, least_seconds: float = 0.0) -> None:
    """Write what took long enough, longest first."""
    rows = sorted((-seconds, *key) for key, seconds in durations.items())
    lines = [
        f"{-seconds:.3f}\t{phase}\t{test}\n"
        for seconds, phase, test in rows
        if -seconds >= least_seconds
    ]
    path.parent.mkdir(exist_ok=True)
    path.write_text(HEADER + "".join(lines), encoding="utf-8")


def pieces(tests: Sequence[str], durations: Durations) -> dict[str, tuple[str, int]]:
    """Return which piece of its file each test belongs to; those of a file adjoin."""
    whole = {
        test.split("::")[0]
        for (phase, test), seconds in durations.items()
        if phase == "setup" and seconds > SLOW_FIXTURE_SECONDS
    }
    found: dict[str, tuple[str, int]] = {}
    taken: dict[str, float] = collections.defaultdict(float)
    for test in tests:
        file = test.split("::")[0]
        taken[file] += durations.get(("call", test), 0.0)
        number = 0 if file in whole else int(taken[file] // PIECE_SECONDS)
        found[test] = (file, number)
    return found


def longest_first(tests: Sequence[str], durations: Durations) -> list[int]:
    """Return the order of tests, as indices: by the seconds of their files."""
    sums: dict[str, float] = collections.defaultdict(float)
    for (_, test), seconds in durations.items():
        sums[test.split("::")[0]] += seconds
    return sorted(range(len(tests)), key=lambda n: -sums[tests[n].split("::")[0]])


class LongestFirst(LoadScopeScheduling):
    """Gives pieces of files to processes, in the order of collection."""

    _pieces: Mapping[str, tuple[str, int]] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._pieces is None:
            [tests, *_] = self.registered_collections.values()
            self._pieces = pieces(tests, read(self.config.rootpath))
        file, number = self._pieces[nodeid]
        return f"{file} {number}"


class Recorder:
    """Notes every test's time, in the process that prints the results."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._durations: dict[tuple[str, str], float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a phase of a test."""
        self._durations[report.when or "", report.nodeid] = report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        write(self._path, self._durations)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the file to write."""
    parser.addoption("--durations-to", type=Path, metavar="FILE", default=None)


def pytest_configure(config: pytest.Config) -> None:
    """Record in one process of several: the one that has no worker's input."""
    path = config.getoption("durations_to")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(path))


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Begin with the longest file, if processes share the work."""
    if hasattr(config, "workerinput"):
        order = longest_first([item.nodeid for item in items], read(config.rootpath))
        items[:] = [items[number] for number in order]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share pieces of files, in the order above."""
    config.option.loadscopereorder = False
    return LongestFirst(config, log)


if __name__ == "__main__":
    here = Path(__file__).parent.parent
    write(here / KEPT, read(here), LEAST_SECONDS)
