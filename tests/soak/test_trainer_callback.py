"""The callback for transformers' Trainer stops and resumes with its checkpoint."""

from __future__ import annotations

import nbkit
from nbkit.store.record import RunState
from tests.launch.conftest import plugins, store
from tests.waiting import wait_until
from tests.worker.test_trainer_callback import train

__all__ = ["plugins", "store"]


def test_trainer_callback_stops_with_a_checkpoint_and_resumes(tmp_path):
    run = nbkit.launch(train, args=(10**9,), gpus=2, device="cpu", oversubscribe=True)
    wait_until(lambda: run.metrics("log"), "a line of the trainer", 120)

    run.stop()

    assert run.state is RunState.STOPPED
    [saved] = (run.paths.root / "trainer").iterdir()
    run.resume()
    step = int(saved.name.rpartition("-")[2])
    wait_until(
        lambda: [line for line in run.metrics("log") if line["attempt"] == 1],
        "a line of the second attempt",
        120,
    )
    run.stop()
    [first, *_] = [line for line in run.metrics("log") if line["attempt"] == 1]
    assert step < first["step"] <= step + 3
