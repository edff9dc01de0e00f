"""A run whose rank fails is started again, if its configuration says so."""

from __future__ import annotations

import pytest

import nbkit
from nbkit.errors import RunFailedError
from nbkit.launch.devices.claims import leases
from nbkit.launch.supervision.leftovers import processes_of_run
from nbkit.live.run import LiveRun
from nbkit.store.record import RunState


def test_restart_from_checkpoint(small):
    run = nbkit.launch(
        small(
            model="dies_once",
            gpus=2,
            steps=8,
            checkpoint_period_steps=2,
            max_restarts=1,
        )
    ).wait()

    assert run.state is RunState.FINISHED
    assert run.attempt == 1
    first, second = run.record["attempts"]
    assert (first["state"], second["state"]) == ("failed", "finished")
    assert first["message"] == "killed by signal SIGKILL (not sent by nbkit)"
    (restart,) = [event for event in run.events if event["event"] == "restart"]
    assert (restart["cause"]["rank"], restart["restarts_left"]) == (1, 0)
    assert restart["cause"]["signal"] == "SIGKILL"
    # The second attempt went on from step 4; every step is there once.
    steps = run.metrics()
    assert [line["step"] for line in steps] == list(range(1, 9))
    assert [line["attempt"] for line in steps] == [0] * 4 + [1] * 4
    assert run.paths.rank(0, 1).stderr.exists()
    assert not processes_of_run(run.paths)
    assert leases("cpu") == {}


def test_restart_not_after_config_error(small, tmp_path):
    (tmp_path / "empty").mkdir()

    run = nbkit.launch(small(data=str(tmp_path / "empty"), max_restarts=5))

    with pytest.raises(RunFailedError) as raised:
        run.wait()
    assert "Traceback" not in str(raised.value)
    # Another attempt would only repeat it.
    assert run.cause["kind"] == "config"
    assert len(run.record["attempts"]) == 1
    live = LiveRun(run)
    live.read()
    assert live.snapshot()["head"]["cause"]["traceback"] is None
    assert "Traceback" in run.cause["traceback"]
