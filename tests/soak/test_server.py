"""Viewers that come and go a thousand times leave nothing in the server."""

from __future__ import annotations

import psutil

from tests.server.conftest import start
from tests.server.test_lifecycle import come_and_go

__all__ = ["start"]

CYCLES = 1000


def test_a_thousand_viewers_leave_neither_file_nor_thread_nor_memory(start):
    server = start()
    process = psutil.Process(server.process.pid)
    with server.view() as stays:
        stays.next("sample")
        come_and_go(server, CYCLES)
        files, threads = process.num_fds(), process.num_threads()
        memory = process.memory_info().rss
        come_and_go(server, CYCLES)

        assert process.num_fds() <= files
        assert process.num_threads() <= threads
        # A viewer that stayed would be some 10 kB.
        assert process.memory_info().rss - memory < 3 * 2**20
        assert stays.next("sample")
