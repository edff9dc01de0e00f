"""Ranks meet on the port that the supervisor has bound, and so does the user's code."""

from __future__ import annotations

import datetime
import os
import socket

import pytest
import torch
import torch.distributed as dist

from nbkit.store.paths import RunPaths
from nbkit.worker.distributed import rendezvous
from nbkit.worker.rank import Rank
from tests.ports import free_port

PATIENCE = datetime.timedelta(seconds=60)


@pytest.fixture
def port(monkeypatch):
    """Bind a port as the supervisor does, and hand it to this process as rank 0."""
    # One test closes it and binds the port anew: nobody takes such a one meanwhile.
    number = free_port()
    with socket.create_server(("127.0.0.1", number)) as listener:
        inherited = os.dup(listener.fileno())
    monkeypatch.setenv("NBKIT_LISTEN_FD", str(inherited))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(number))
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    return number


@pytest.fixture
def rank(tmp_path):
    return Rank(RunPaths(tmp_path), 0, 0, 1, 1, 0, None)


def test_a_process_group_is_made_though_nothing_tells_torch_of_the_store(port, rank):
    store = rendezvous(rank, PATIENCE)

    dist.init_process_group("gloo", timeout=PATIENCE)
    try:
        total = torch.ones(1)
        dist.all_reduce(total)
    finally:
        dist.destroy_process_group()

    assert total.item() == 1
    assert store.port == port
    assert store.add("afterwards", 1) == 1
