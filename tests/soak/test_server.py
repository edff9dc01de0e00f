"""Viewers that come and go a thousand times leave nothing in the server."""

from __future__ import annotations

import psutil

from tests.server.conftest import start
from tests.server.jupyter import Jupyter
from tests.waiting import wait_until

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
    sampler = server.sampler()
    wait_until(lambda: not sampler or not sampler.is_running(), "no viewer left")


def come_and_go(server: Jupyter, times: int) -> None:
    """Let viewers come and go beside one that stays."""
    for number in range(times):
        with server.view() as view:
            if number % 2:
                view.next("history")
    process = psutil.Process(server.process.pid)

    def sockets() -> int:
        tcp = process.net_connections("tcp")
        return sum(one.status != psutil.CONN_LISTEN for one in tcp)

    wait_until(lambda: sockets() == 1, "the end of all sockets but one")
