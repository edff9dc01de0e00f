"""For `make quick`: a test that starts a process is skipped as soon as it does."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_ALWAYS = {"browser", "endings", "notebooks", "server", "slurm"}
"""Folders of tests most of which start one; a loop of asyncio swallows the skip."""
_EVENTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the option."""
    parser.addoption("--without-processes", action="store_true")


def pytest_configure(config: pytest.Config) -> None:
    """Watch in the processes that run tests: pytest-xdist's first one starts them."""
    runs_tests = hasattr(config, "workerinput") or not config.getoption(
        "numprocesses", None
    )
    if config.getoption("without_processes") and runs_tests:
        config.pluginmanager.register(_Watch())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what starts processes for sure, and not even import it.

    Playwright is left with a loop in which nothing else runs.
    """
    leaves_out = config.getoption("without_processes")
    return True if leaves_out and collection_path.name in _ALWAYS else None


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Leave out what would wait for what never starts."""
    if config.getoption("without_processes"):
        items[:] = [item for item in items if not item.get_closest_marker("waiting")]


class _Watch:
    def __init__(self) -> None:
        self._is_in_test = False
        sys.addaudithook(self._look)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        self._is_in_test = True
        try:
            return (yield)
        finally:
            self._is_in_test = False

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        # What another thread starts is a moment's helper, and no test ends there.
        is_main = threading.current_thread() is threading.main_thread()
        if self._is_in_test and is_main and event in _EVENTS:
            pytest.skip("starts a process")
