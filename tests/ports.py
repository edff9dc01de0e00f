"""Ports for servers of tests, which no other process takes before they listen."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from pathlib import Path

__all__ = ["free_port", "of_this_process"]

_given: set[int] = set()


def free_port() -> int:
    """Return a port at which nobody listens, and that no other process is given.

    The system does not use it for connections, and each process of pytest-xdist has
    ports of its own. So it is free until the server listens, and while the server is
    started again. A Jupyter server at port 0 releases the one that it finds before it
    listens.
    """
    own = of_this_process()
    # Another suite may have begun with the same seed.
    chance = random.SystemRandom()
    while True:
        port = chance.choice(own)
        if port not in _given:
            with contextlib.suppress(OSError), socket.create_server(("", port)):
                _given.add(port)
                return port


def of_this_process() -> list[int]:
    """Return the ports of which this process may take some."""
    given = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    first, last = map(int, given)
    ports = [*range(10_000, first), *range(last + 1, 65_536)]
    # The numbers after the last are those of processes that replace one that died.
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return (ports or [*range(10_000, 65_536)])[number % count :: count]
