"""Trackers that nobody closes keep everything, and hear how the run ended.

wandb is installed beside nbkit's peers (`make setup-peers`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

import nbkit
from tests.launch.conftest import store

__all__ = ["store"]

proto = pytest.importorskip("wandb.proto.wandb_internal_pb2")
STEPS = 50
SCRIPT = f"""
import wandb
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter("tensorboard")
run = wandb.init(mode="offline", project="endings", dir=".")
for step in range({STEPS}):
    writer.add_scalar("loss", 1 / (step + 1), step)
    run.log({{"loss": 1 / (step + 1)}})
print("last words", flush=True)
raise KeyError("here")
"""
BLOCK_BYTES = 32_768


def records(file: Path) -> Iterator[bytes]:
    """Yield what is in a file of wandb's: a LevelDB log below a head of 7 bytes."""
    data, at, record = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = BLOCK_BYTES - at % BLOCK_BYTES
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def kept(folder: Path) -> dict[str, object]:
    """Return what the trackers have kept in a folder."""
    (file,) = folder.glob("tensorboard/*")
    steps = [event.step for event in EventFileLoader(str(file)).Load()]
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    told = [proto.Record.FromString(record) for record in records(file)]
    kinds = [record.WhichOneof("record_type") for record in told]
    (ended,) = (record.exit for record in told if record.HasField("exit"))
    (output,) = folder.glob("wandb/offline-run-*/files/output.log")
    return {
        "tensorboard": steps[-STEPS:] == list(range(STEPS)),
        "wandb": kinds.count("history"),
        "exit code": ended.exit_code,
        "printed": "last words" in output.read_text(),
        "traceback": "KeyError: 'here'" in output.read_text(),
    }


def test_what_trackers_were_told_is_kept_after_an_exception(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "tracked.py"
    script.write_text(SCRIPT)

    run = nbkit.launch(script, device="cpu", oversubscribe=True)
    run.wait(raise_on_failure=False)

    (rank,) = run.record["attempts"][-1]["ranks"]
    assert rank["exit_code"] == 1
    # As under plain Python.
    assert kept(tmp_path) == {
        "tensorboard": True,
        "wandb": STEPS,
        "exit code": 1,
        "printed": True,
        "traceback": True,
    }
