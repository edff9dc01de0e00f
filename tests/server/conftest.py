"""Real servers: one that many tests watch, and others of a test's own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.server.jupyter import STAND_IN, Jupyter, jupyter

# Samples come as fast as they may, so that tests need not wait.
QUICK = "--NbkitServer.interval_seconds=0.25"
COMMAND = f"--NbkitServer.feed_command={STAND_IN}"


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jupyter]:
    """Return a server that somebody watches all the time, so that its sampler stays."""
    folder = tmp_path_factory.mktemp("watched")
    with jupyter(folder, COMMAND, QUICK) as server, server.view() as view:
        view.next("sample")
        # Whoever comes from now on gets the runs immediately, too.
        with server.view() as other:
            other.next("runs")
        yield server


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Jupyter]]:
    """Return a starter of servers that end with the test."""
    with contextlib.ExitStack() as stack:

        def begin(
            *options: str, real_sampler: bool = False, **settings: object
        ) -> Jupyter:
            named = {option.partition("=")[0] for option in options}
            usual = (QUICK,) if real_sampler else (COMMAND, QUICK)
            own = [o for o in usual if o.partition("=")[0] not in named]
            server = jupyter(tmp_path, *own, *options, **settings)
            return stack.enter_context(server)

        yield begin
