"""Runs with curves, and the processes of TensorBoard that show them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

from nbkit.server.tensorboard_process import MODULE
from tests.server.jupyter import Answer, Jupyter
from tests.server.stored_runs import store_run, write_scalars

RUN_ID = "20200101-000000-run-aaaa"
TAGS = "data/plugin/scalars/tags"
ECHO = f"--NbkitServer.tensorboard_command={Path(__file__).with_name('echo_board.py')}"


def store_curves(server: Jupyter, run_id: str = RUN_ID) -> Path:
    folder = store_run(server.folder / "store", run_id)
    write_scalars(folder, "train/loss", [3.0, 2.0, 1.0])
    return folder


def open_board(server: Jupyter, run_id: str = RUN_ID) -> Answer:
    return server.request(f"nbkit/api/runs/{run_id}/tensorboard", {})


def children(server: Jupyter) -> list[psutil.Process]:
    return psutil.Process(server.process.pid).children(recursive=True)


def boards(server: Jupyter) -> list[psutil.Process]:
    """Return the processes of TensorBoard that the server has, oldest first."""
    found = []
    for child in children(server):
        with contextlib.suppress(psutil.NoSuchProcess):
            if MODULE in child.cmdline():
                found.append(child)
    return sorted(found, key=psutil.Process.create_time)


def socket_of(board: psutil.Process) -> Path:
    arguments = board.cmdline()
    return Path(arguments[arguments.index("--socket") + 1])
