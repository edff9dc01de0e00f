"""The code on the pages of trainers, offline, on two ranks: numbers, stop and resume.

The packages are installed beside nbkit's peers (`make setup-peers`).
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import nbkit
from nbkit.store.record import RunState
from tests.house.documents import ROOT, blocks
from tests.launch.conftest import store
from tests.waiting import wait_until

__all__ = ["store"]

HERE = {"gpus=8": "gpus=2, device='cpu', oversubscribe=True"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def launch_page(name, **changes):
    """Write a page's script, execute its cell, and return the run."""
    *files, cell = blocks((ROOT / f"nbkit/launch/trainers/{name}.md").read_text())
    for block in files:
        Path(block.file).write_text(_changed(block.text, changes))
    names = {"nbkit": nbkit, "__name__": "__main__"}
    exec(_changed(cell.text, changes), names)
    return names["run"]


def _changed(code, changes):
    for written, here in changes.items():
        code = code.replace(written, here)
    return code


def lines_of(run):
    return [line for line in run.metrics("log") if "loss" in line["values"]]


def test_lightning_page_counts_samples_and_resumes(folder):
    if find_spec("lightning") is None:  # to import it leaves a variable behind
        pytest.skip("needs lightning")
    steps = "max_steps=1500, max_epochs=-1, log_every_n_steps=20, accelerator='cpu'"
    small = {"max_epochs=10": steps, 'devices="auto"': "devices=2"}

    run = launch_page("lightning", **HERE, **small)
    wait_until(lambda: lines_of(run), "a line of the trainer", 120)
    run.stop()
    assert run.state is RunState.STOPPED
    run.resume().wait()

    lines = lines_of(run)
    assert [line["step"] for line in lines][-1] == 1500
    assert {line["total_steps"] for line in lines} == {1500}
    assert lines[-1]["values"]["samples_seen"] == 1500 * 16 * 2
    for line in lines:
        assert line["values"]["loss"] == pytest.approx(line["values"]["train_loss"])
        assert line["values"]["learning_rate"] == 1e-3


def test_accelerate_page_is_recorded_as_tensorboard_has_it(folder):
    cpu = {"Accelerator(": "Accelerator(cpu=True, "}  # else each rank trains alone
    small = {"4096": "65536", **cpu, **HERE}
    whole = launch_page("accelerate", **small).wait()

    events = EventAccumulator(str(whole.paths.root / "accelerate")).Reload()
    written = {it.step: it.value for it in events.Scalars("train_loss")}
    losses = {line["step"]: line["values"]["loss"] for line in lines_of(whole)}
    assert losses == pytest.approx(written)
    assert [*losses] == [*range(2048)]

    run = launch_page("accelerate", **small)
    wait_until(lambda: lines_of(run), "a line of the loop", 120)
    run.stop()
    run.resume().wait()

    resumed = {line["step"]: line["values"]["loss"] for line in lines_of(run)}
    assert resumed == pytest.approx(losses)
