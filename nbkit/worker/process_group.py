"""Process group of a user's ranks, or of one rank with a GPU."""

from __future__ import annotations

import datetime
import os
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import torch
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

from nbkit.config import ExperimentConfig
from nbkit.store.metrics import read_json_lines
from nbkit.store.processes import ProcessIdentity
from nbkit.store.record import read_json
from nbkit.worker.distributed import choose_device, rendezvous
from nbkit.worker.rank import Rank

_OTHERS_SECONDS = 1.0
"""What other ranks have to leave after rank 0 before its connections are closed."""


def prepare_rendezvous(
    rank: Rank, config: ExperimentConfig
) -> tuple[torch.device, Callable[[], None]]:
    """Return this rank's device, and what waits until the others have left."""
    device = choose_device(rank, config)
    timeout = datetime.timedelta(seconds=config.collective_timeout_seconds)
    store = rendezvous(rank, timeout)
    master = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    _serve_own_master(master)
    return device, partial(_wait_for_all, store, rank, device)


def _serve_own_master(master: tuple[str, str]) -> None:
    """Let `env://` be a client of the run's store, as under torchrun."""
    # Where the code has set another MASTER_PORT, rank 0 becomes the server there: torch
    # takes any address for the agent's, and all ranks would wait for a server.
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"

    def uses_agent_store() -> bool:
        return (os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")) == master

    module = sys.modules["torch.distributed.rendezvous"]
    if hasattr(module, "_torchelastic_use_agent_store"):
        setattr(module, "_torchelastic_use_agent_store", uses_agent_store)  # noqa: B010


def _wait_for_all(store: TCPStore, rank: Rank, device: torch.device) -> None:
    """Keep the store open until all ranks have left: rank 0's process holds it."""
    # One that waits for rank 0 in a collective fails soon, as if this process had
    # ended. One that fails before it comes here ends all of them by the supervisor.
    try:
        departed = store.add("nbkit/left", 1)
    except RuntimeError:
        return  # rank 0 has left by os._exit, and the store with it
    pause = threading.Event()
    work_end: torch.cuda.Event | None = None
    if device.type == "cuda" and torch.cuda.is_initialized():
        work_end = torch.cuda.Event()
        work_end.record(torch.cuda.current_stream(device))
    patience = time.monotonic() + _OTHERS_SECONDS
    while rank.rank == 0 and departed < rank.world_size:
        pause.wait(0.02)
        departed = store.add("nbkit/left", 0)
        if time.monotonic() > patience and (work_end is None or work_end.query()):
            patience += _OTHERS_SECONDS
            _close_connections(but=store.port)
            if _others_are_gone(rank):
                return  # some by os._exit


def _others_are_gone(rank: Rank) -> bool:
    """Return whether all other ranks have ended, as far as this one can know."""
    ended = {
        event.get("rank")
        for event in read_json_lines(rank.paths.events)
        if event.get("event") == "rank_ended" and event.get("attempt") == rank.attempt
    }
    remaining = set(range(rank.world_size)) - {rank.rank} - ended
    files = [rank.paths.rank(rank.attempt, other).process for other in remaining]
    processes = [read_json(file) for file in files]
    return all(
        process is not None and ProcessIdentity.from_dict(process).is_alive() is False
        for process in processes
    )


def _close_connections(but: int) -> None:
    """Close this process's connections over TCP, except those of one port."""
    # They belong to process groups, whose own end waits for the other ranks.
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not paths
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as connection:
                if connection.family in (socket.AF_INET, socket.AF_INET6):
                    ports = connection.getsockname()[1], connection.getpeername()[1]
                    if but not in ports:
                        connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue  # it listens, or was closed meanwhile
