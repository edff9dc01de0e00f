"""The server holds where the next Jupyter, tornado or Python has other names."""

from __future__ import annotations

import asyncio
import http.client
import logging
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import psutil
import pytest
from tornado.httpclient import AsyncHTTPClient

from nbkit.server import child
from nbkit.server.tensorboard_process import MODULE
from nbkit.server.tensorboards import TensorBoards
from tests.renamed import renamed
from tests.server.curves import ECHO, RUN_ID, TAGS, open_board, store_curves
from tests.server.stored_runs import store_run, write_scalars

ROOT = Path(__file__).parents[2]

# The interval in seconds; another flag of handlers that are no activity; another name
# for whether an answer has begun.
NEXT_RELEASES = """
from jupyter_server.base import handlers, websocket
from datetime import datetime, timezone
from tornado.web import RequestHandler
from tests.renamed import renamed

websocket.WS_PING_INTERVAL = 30

def update_api_activity(self):
    if self.get_argument("no_track_activity", None) is None:
        self.settings["api_last_activity"] = datetime.now(timezone.utc)

handlers.APIHandler.update_api_activity = update_api_activity
RequestHandler._headers_written = renamed("_headers_written", "tornado")
"""
PING = 9

# Another base class, and no such option.
NEXT_TENSORBOARD = f"""
import importlib, runpy

program = importlib.import_module("tensorboard.program")
del program.TensorBoardServer
configure = program.TensorBoard.configure

def configure_now(self, *argv, **flags):
    if "load_fast" in flags:
        raise ValueError("Unknown TensorBoard flag: load_fast")
    return configure(self, *argv, **flags)

program.TensorBoard.configure = configure_now
runpy.run_module({MODULE!r}, run_name="__main__")
"""


def test_pings_activity_and_broken_answers_need_no_name_of_others(start, tmp_path):
    settings = tmp_path / "config" / "jupyter_server_config.py"
    settings.parent.mkdir()
    settings.write_text(NEXT_RELEASES)
    server = start(ECHO, variables={"PYTHONPATH": str(ROOT)})
    store_curves(server)

    def last_activity() -> str:
        answer = server.request("api/status?no_track_activity=1")
        return answer.body["last_activity"]

    before = last_activity()
    with server.view() as view:
        view.next("sample")
        kinds = [view.socket.recv_data(control_frame=True)[0] for _ in range(3)]
    path = open_board(server).body["path"]
    assert server.request("nbkit/api/status").status == 200
    assert last_activity() == before
    assert PING not in kinds
    assert server.request(f"{path}broken").status == 502
    with pytest.raises(http.client.IncompleteRead):
        server.request(f"{path}half")
    assert "Traceback" not in server.log


def test_a_process_that_cannot_be_killed_is_left_where_its_pipes_have_no_name(
    monkeypatch, caplog
):
    name = "_transport"
    monkeypatch.setattr(Process, name, renamed(name, "asyncio"), raising=False)
    monkeypatch.setattr(child, "_END_SECONDS", 0.05)
    monkeypatch.setattr(child, "_KILLED_SECONDS", 0.05)

    async def leave() -> int:
        process = await asyncio.create_subprocess_exec("sleep", "1000", stdin=PIPE)
        with monkeypatch.context() as context:
            # As of a process that hangs in the driver.
            context.setattr(Process, "kill", lambda _: None)
            await child.end(process)
        process.kill()
        await process.wait()
        return process.pid

    with caplog.at_level(logging.WARNING):
        pid = asyncio.run(leave())

    assert f"process {pid}, which cannot be killed, stay open" in caplog.text


def test_a_tensorboard_of_other_names_shows_curves_and_opens_no_port(tmp_path):
    program = tmp_path / "next_tensorboard.py"
    program.write_text(NEXT_TENSORBOARD)
    run = store_run(tmp_path, RUN_ID)
    write_scalars(run, "train/loss", [2.0, 1.0])

    async def ask(client: AsyncHTTPClient) -> bytes:
        return (await client.fetch(f"http://tensorboard/{TAGS}")).body

    async def look() -> tuple[list[psutil.Process], list[Any]]:
        boards = TensorBoards(60, logging.getLogger("test"), [str(program)])
        await boards.open(RUN_ID, run)
        board = boards.find(RUN_ID)
        assert board is not None
        assert board.client is not None
        # It reads them beside its answers.
        async with asyncio.timeout(60):
            while b"train/loss" not in await ask(board.client):
                await asyncio.sleep(0.05)
        [process] = [
            one
            for one in psutil.Process().children()
            if str(program) in one.cmdline() and sys.executable in one.cmdline()
        ]
        found = process.children(), process.net_connections("inet")
        await boards.close()
        return found

    assert asyncio.run(look()) == ([], [])
