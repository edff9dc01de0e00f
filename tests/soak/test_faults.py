"""Every fault twenty times: right each time, and quickly where it can be noticed."""

from __future__ import annotations

import signal

import psutil
import pytest

import nbkit
from nbkit.launch.supervision.leftovers import processes_of_run
from nbkit.store.record import RunState
from tests.launch import faults
from tests.launch.conftest import plugins, small, store
from tests.notebooks.faults import kernel_group_is_killed, papermill_is_ended
from tests.waiting import hang_limit, patient, wait_until

__all__ = ["plugins", "small", "store"]


ROUNDS = 20

EXPECTED = {
    faults.rank_raises: (RunState.FAILED, {"rank": 1, "kind": "exception"}),
    faults.rank_is_killed: (RunState.FAILED, {"rank": 1, "signal": "SIGKILL"}),
    faults.rank_crashes: (RunState.FAILED, {"rank": 1, "signal": "SIGSEGV"}),
    faults.rank_hangs: (RunState.FAILED, {"rank": 1, "kind": "hang"}),
    faults.supervisor_is_killed: (RunState.LOST, {"kind": "lost"}),
    faults.ranks_ignore_sigterm: (RunState.STOPPED, {"forced": True}),
    faults.owner_group_is_killed: (RunState.STOPPED, {"by": "owner exit"}),
    kernel_group_is_killed: (RunState.STOPPED, {"by": "owner exit"}),
}


@pytest.mark.parametrize("round_number", range(ROUNDS))
@pytest.mark.parametrize("fault", EXPECTED, ids=lambda fault: fault.__name__)
def test_fault(fault, round_number, small):
    state, cause = EXPECTED[fault]

    outcome = fault(small)

    _check(outcome, state, cause)


@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_papermill_is_killed(round_number, tmp_path):
    outcome = papermill_is_ended(tmp_path, signal.SIGKILL)

    _check(outcome, RunState.STOPPED, {"by": "owner exit"})


def _check(outcome, state, cause):
    assert outcome.state is state
    assert {key: outcome.cause[key] for key in cause} == cause
    assert outcome.seconds <= faults.DETECTED_WITHIN_SECONDS
    steps = [line["step"] for line in outcome.metrics]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) >= 2


def test_run_whose_loading_processes_hang(small):
    config = small(
        data="photos",
        loader="stuck_storage_torch",
        loader_config={"num_workers": 2},
        steps=1000,
        # Its clock runs while the rank imports torch.
        hang_timeout_seconds=hang_limit(),
    )

    run = nbkit.launch(config).wait(patient(120), raise_on_failure=False)

    assert run.cause is not None
    assert "waiting for data" in run.cause["message"]
    rank, _, loading = run.cause["stacks"]["0"].partition("\n2 loading processes")
    assert "in _next_data" in rank
    assert "nbkit_test_loaders.py" in loading
    assert "in stuck" in loading


def test_stop_loading_processes(small):
    config = small(
        model="slow",
        data="photos",
        loader="forkserver_torch",
        loader_config={"num_workers": 2},
        steps=10_000,
    )
    run = nbkit.launch(config)
    wait_until(run.metrics, "a first step", 120)
    rank = psutil.Process(faults.rank_pid(run, 0))
    loading = rank.children(recursive=True)

    run.stop()

    assert len(loading) == 2, loading
    assert run.state is RunState.STOPPED
    assert run.cause["forced"] is False
    wait_until(lambda: not any(one.is_running() for one in loading), "their end")
    wait_until(lambda: not processes_of_run(run.paths), "no process left")
