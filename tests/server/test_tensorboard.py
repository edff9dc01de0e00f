"""TensorBoard behind the server: a real one, of a real run's files."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
import stat
from pathlib import Path
from urllib.parse import urljoin

import psutil
import pytest

from nbkit.errors import LaunchError
from nbkit.server import tensorboards
from nbkit.server.tensorboard_process import MODULE, READY
from nbkit.server.tensorboards import MOST_TENSORBOARDS, TensorBoards
from tests.server.curves import (
    RUN_ID,
    TAGS,
    boards,
    open_board,
    socket_of,
    store_curves,
)
from tests.server.stored_runs import store_run
from tests.server.test_tensorboard_pages import headers
from tests.waiting import patient, wait_until


def test_run_opens_below_base_url_in_one_private_process_that_ends_with_the_server(
    start, tmp_path
):
    # Too long for the name of a socket.
    long = tmp_path / ("d" * 100)
    long.mkdir()
    idle = "--NbkitServer.tensorboard_idle_seconds=700"
    server = start(idle, base_url="/user/a@b/", variables={"TMPDIR": str(long)})
    store_curves(server)
    refuses_what_has_no_curves(server)

    first = open_board(server)
    second = open_board(server)
    page = server.request(first.body["path"])
    # TensorBoard reads the files beside its answers.
    tags = wait_until(
        lambda: server.request(f"{first.body['path']}{TAGS}").body, "curves"
    )
    found = re.findall(r"url\(([^)]*font-roboto/[^)]*)\)", page.body)
    told = headers(server, first.body["path"])
    policies = told.get_all("Content-Security-Policy", [])
    font = urljoin(f"{server.url}{first.body['path']}", found[0])

    answer = {"path": f"nbkit/tensorboard/{RUN_ID}/", "idle_seconds": 700}
    answer |= {"shown": 1, "total": 1}
    assert first.body == {**answer, "started": True}
    assert second.body == {**answer, "started": False}
    assert "<tb-webapp>" in page.body
    assert any("script-src" in policy for policy in policies)
    assert "sandbox" not in policies
    assert told.get_all("Content-Type") == ["text/html; charset=utf-8"]
    # Its own page seeks them at the root of the site, which is the hub's.
    assert server.request(font.removeprefix(server.url)).status == 200
    assert list(tags["a run"]) == ["train/loss"]
    (board,) = boards(server)
    assert board.children() == []
    assert board.net_connections("inet") == []
    assert stat.S_IMODE(socket_of(board).parent.stat().st_mode) == 0o700
    end_server(server, signal.SIGKILL)


def refuses_what_has_no_curves(server):
    """Ask for runs that are not there, or have no TensorBoard files."""
    for run_id in (
        *("..", "%2e%2e", "..%2F..%2Fetc", RUN_ID[:-1]),
        *(f"{RUN_ID}%2F..", f"{RUN_ID}%00"),
    ):
        page = f"nbkit/tensorboard/{run_id}/{TAGS}"
        assert open_board(server, run_id).status in (400, 404), run_id
        assert server.request(page).status in (400, 404), run_id
    empty = store_run(server.folder / "store", "20200101-000000-run-bbbb")

    answer = open_board(server, empty.name)

    assert answer.status == 404
    assert "has no TensorBoard files" in answer.body["message"]
    assert boards(server) == []


def end_server(server, how):
    """End a server, and expect the end of its TensorBoard and its sampler."""
    (board,) = boards(server)
    folder = socket_of(board).parent
    with server.view() as view:
        view.next("sample")
        sampler = server.wait_for_sampler()

        server.process.send_signal(how)
        server.process.wait(patient(20))

        wait_until(lambda: not sampler.is_running(), "the sampler's end")
    wait_until(lambda: not board.is_running(), "its end")
    wait_until(lambda: not folder.exists(), "the end of its folder")
    assert how == signal.SIGKILL or "Traceback" not in server.log


def test_a_start_that_fails_says_why_and_the_next_is_new(start, tmp_path):
    program = tmp_path / "program.py"
    # As where the package is not installed.
    program.write_text(
        "import runpy, sys\n"
        "sys.modules['tensorboard'] = None\n"
        f"runpy.run_module({MODULE!r}, run_name='__main__')\n"
    )
    server = start(f"--NbkitServer.tensorboard_command={program}")
    store_curves(server)

    without = open_board(server)
    program.write_text("raise SystemExit('no space left')")
    answers = [open_board(server), open_board(server)]

    assert without.status == 503
    assert "TensorBoard is not installed" in without.body["message"]
    assert '-m pip install "tensorboard>=' in without.body["message"]
    for answer in answers:
        assert answer.status == 503
        assert "(exit code 1: no space left)" in answer.body["message"]
    assert server.log.count("no space left") == 2
    assert "Traceback" not in server.log
    assert server.request("nbkit/api/status").status == 200


def test_a_start_that_hangs_is_given_up_and_ended(tmp_path, monkeypatch):
    seconds = patient(1)
    monkeypatch.setattr(tensorboards, "START_SECONDS", seconds)
    hangs = tmp_path / "hangs.py"
    hangs.write_text(
        "import os, pathlib, sys, time\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        "print('looking for files', file=sys.stderr, flush=True)\n"
        "time.sleep(1000)\n"
    )

    async def attempt() -> tuple[str, bool]:
        own = TensorBoards(60, logging.getLogger("test"), [str(hangs)])
        with pytest.raises(LaunchError) as refused:
            await own.open(RUN_ID, {})
        is_there = psutil.pid_exists(int((tmp_path / "pid").read_text()))
        await own.close()
        return str(refused.value), is_there

    message, is_there = asyncio.run(attempt())

    assert f"(no answer within {seconds:g} s: looking for files)" in message
    assert not is_there


def ready(folder: Path, *last: str) -> str:
    """Write a program that stands for a TensorBoard; return its path."""
    program = folder / "ready.py"
    lines = [
        "import os, sys, time",
        f"open({str(folder / 'pid')!r}, 'w').write(str(os.getpid()))",
        f"sys.stdout.write({READY.decode()!r}); sys.stdout.flush()",
        "sys.stdin.read()",
        *last,
    ]
    program.write_text("\n".join(lines))
    return str(program)


def test_one_that_nobody_uses_ends_and_can_be_opened_again(tmp_path):
    program = ready(tmp_path)

    async def attempt() -> bool:
        own = TensorBoards(0.5, logging.getLogger("test"), [program])
        await own.open(RUN_ID, {})
        board = own.find(RUN_ID)
        assert board is not None
        process = psutil.Process(int((tmp_path / "pid").read_text()))
        folder = socket_of(process).parent
        assert folder.exists()
        async with asyncio.timeout(patient(60)):
            await asyncio.wait([board.task])
        assert not process.is_running()
        assert not folder.exists()
        is_new = await own.open(RUN_ID, {})
        await own.close()
        return is_new

    assert asyncio.run(attempt())


def test_one_that_is_kept_is_used_and_its_runs_are_found_again_after_a_minute(
    tmp_path, monkeypatch
):
    program = ready(tmp_path)
    found = []

    async def attempt() -> None:
        own = TensorBoards(60, logging.getLogger("test"), [program])
        found.append(own.keep("all-runs"))
        await own.open("all-runs", {})
        board = own.find("all-runs")
        assert board is not None
        used = board.used
        found.append(own.keep("all-runs"))
        assert board.used > used
        monkeypatch.setattr(tensorboards, "SEARCH_SECONDS", 0.0)
        found.append(own.keep("all-runs"))
        await own.close()

    asyncio.run(attempt())

    assert found == [False, True, False]


def test_one_in_use_makes_no_room_for_another(tmp_path):
    program = ready(tmp_path)

    async def attempt() -> str:
        own = TensorBoards(60, logging.getLogger("test"), [program])
        names = [str(number) for number in range(MOST_TENSORBOARDS)]
        with contextlib.ExitStack() as requests:
            for name in names:
                await own.open(name, {})
                board = own.find(name)
                assert board is not None
                requests.enter_context(board.use())
            with pytest.raises(LaunchError) as refused:
                await own.open("another", {})
            assert all(map(own.find, names))
        assert await own.open("another", {})
        await own.close()
        return str(refused.value)

    assert asyncio.run(attempt()) == (
        "4 TensorBoards are starting or answering requests (limit 4). Try again in a "
        "moment, or close a TensorBoard."
    )


def test_who_goes_away_during_a_start_ends_it_for_nobody_else(tmp_path):
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import pathlib, sys, time\n"
        f"while not pathlib.Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.02)\n"
        f"sys.stdout.write({READY.decode()!r}); sys.stdout.flush()\n"
        "sys.stdin.read()\n"
    )

    async def attempt() -> bool:
        own = TensorBoards(60, logging.getLogger("test"), [str(slow)])
        first = asyncio.create_task(own.open(RUN_ID, {}))
        second = asyncio.create_task(own.open(RUN_ID, {}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        first.cancel()
        (tmp_path / "go").touch()
        started = await second
        await own.close()
        assert first.cancelled()
        return started

    assert asyncio.run(attempt()) is False
