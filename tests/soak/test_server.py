"""Viewers, samplers and TensorBoards of a server, many times or for long."""

from __future__ import annotations

import json
import signal

import psutil

from nbkit.server.tensorboards import MOST_TENSORBOARDS
from tests.server.conftest import start
from tests.server.curves import TAGS, boards, open_board, store_curves
from tests.server.jupyter import Jupyter
from tests.server.test_tensorboard import end_server
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


def test_sampler_stopped_is_replaced(start):
    server = start()
    with server.view() as view:
        view.next("sample")
        sampler = server.wait_for_sampler()
        sampler.suspend()
        while (stopped := view.next("status"))["sampler"] == "running":
            pass  # signs of life
        view.next("sample")

        assert server.wait_for_sampler() != sampler
    assert "no output for 20 s" in stopped["message"]


def test_a_viewer_that_does_not_read_skips_samples_and_delays_nobody(start):
    # So large that the sockets between the two do not hold many.
    server = start(variables={"STAND_IN": json.dumps({"cores": 400_000})})
    with server.view() as quick, server.view() as slow:
        slow.next("status")
        quick.next("sample")
        before = psutil.Process(server.process.pid).memory_info().rss
        seen = [quick.next("sample") for _ in range(30)]
        grown = psutil.Process(server.process.pid).memory_info().rss - before
        late = [slow.next("sample")["seq"]]
        while late[-1] < seen[-1]["seq"]:
            late.append(slow.next("sample")["seq"])

    numbers = [sample["seq"] for sample in seen]
    assert numbers == sorted(set(numbers))
    assert late == sorted(set(late))
    assert _missed(numbers) < _missed(late)
    assert grown < 15 * len(json.dumps(seen[-1]))


def _missed(numbers: list[int]) -> int:
    return numbers[-1] - numbers[0] + 1 - len(numbers)


def test_a_fifth_run_ends_the_one_unused_for_the_longest_time(start):
    server = start()
    names = [
        f"20200101-00000{number}-run-aaaa" for number in range(MOST_TENSORBOARDS + 1)
    ]
    for name in names:
        store_curves(server, name)
    for name in names[:MOST_TENSORBOARDS]:
        assert open_board(server, name).status == 200
    _, oldest, *_ = boards(server)
    server.request(f"nbkit/tensorboard/{names[0]}/{TAGS}")

    assert open_board(server, names[MOST_TENSORBOARDS]).status == 200

    assert not oldest.is_running()
    assert len(boards(server)) == MOST_TENSORBOARDS
    assert server.request(f"nbkit/tensorboard/{names[0]}/{TAGS}").status == 200
    gone = server.request(f"nbkit/tensorboard/{names[1]}/{TAGS}")
    assert gone.status == 404
    assert "Open it from the run's row" in gone.body


def test_server_end_by_sigterm_ends_board_and_sampler(start):
    server = start()
    store_curves(server)
    open_board(server)
    end_server(server, signal.SIGTERM)


def test_a_line_that_is_no_json_ends_the_sampler_and_not_the_server(start):
    server = start(variables={"STAND_IN": json.dumps({"garbage": True})})
    with server.view() as view:
        while (status := view.next("status"))["sampler"] != "failed":
            pass

        assert "unreadable output, JSONDecodeError" in status["message"]
        assert server.request("nbkit/api/status").status == 200


def test_viewer_of_few_samples_gets_a_sign_of_life(start):
    server = start("--NbkitServer.interval_seconds=60")
    with server.view() as view:
        view.send('{"type":"interval","interval_seconds":1000}')
        view.next("sample")
        status = view.next("status")

    assert status["sampler"] == "running"
    assert status["runs_fault"] is None
