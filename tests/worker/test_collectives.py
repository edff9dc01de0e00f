"""The last collective operations of a rank, written down when its supervisor asks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from nbkit.store.heartbeat import COLLECTIVES_SIGNAL
from nbkit.store.record import read_json
from nbkit.worker import collectives

PROGRAM = """
import signal, sys
from nbkit.store.heartbeat import COLLECTIVES_SIGNAL
signal.pthread_sigmask(signal.SIG_BLOCK, {COLLECTIVES_SIGNAL})
from nbkit.store.paths import RunPaths
from nbkit.worker.collectives import record_collectives
from nbkit.worker.rank import Rank
from pathlib import Path

rank = Rank(RunPaths(Path(sys.argv[1])), 0, 0, 2, 2, 0, None)
record_collectives(rank)
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_rank_that_is_asked_writes_them_and_goes_on(tmp_path):
    folder = tmp_path / "logs" / "0" / "0"
    folder.mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as rank:
        assert rank.stdin is not None
        assert rank.stdout is not None
        rank.stdout.readline()
        os.kill(rank.pid, COLLECTIVES_SIGNAL)
        while not (written := read_json(folder / "collectives.json")):
            assert rank.poll() is None
        rank.stdin.close()

    assert "version" in written
    assert rank.returncode == 0


class _Recorders:
    """torch's functions by version: each says what it has."""

    def __init__(self, nccl, newer=None, takes_backend=True):
        self._dump_nccl_trace_json = lambda **given: nccl
        if newer is not None:
            self._dump_fr_trace_json = self._newer
        self._found, self._takes_backend = newer, takes_backend

    def _newer(self, **given):
        if "backend" in given and not self._takes_backend:
            raise TypeError
        return self._found


EMPTY, FULL = b'{"version":"2"}', b'{"entries":[]}'


@pytest.mark.parametrize(
    ("recorders", "found"),
    [
        (_Recorders(FULL), FULL),
        (_Recorders(FULL, EMPTY, takes_backend=False), FULL),
        (_Recorders(EMPTY, FULL), FULL),
        (_Recorders(EMPTY, FULL, takes_backend=False), EMPTY),
    ],
    ids=["2.7", "2.8", "a backend nccl2", "nothing recorded"],
)
def test_whichever_recorder_has_operations_is_read(monkeypatch, recorders, found):
    monkeypatch.setattr(collectives, "distributed_c10d", recorders)

    assert collectives.recorded_operations() == found


def test_what_the_user_has_set_stays(monkeypatch, tmp_path):
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("TORCH_NCCL_TRACE_BUFFER_SIZE", "9")

    collectives.prepare_environment()

    assert os.environ["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "9"
    assert "TORCH_FR_BUFFER_SIZE" not in os.environ
    assert os.environ["NCCL_DEBUG"] == "INFO"
    assert signal.SIGRTMIN < COLLECTIVES_SIGNAL < signal.SIGRTMAX
