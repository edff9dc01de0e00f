"""Faults of runs by hand that take patience to notice, or leave nobody to notice."""

from __future__ import annotations

import os
import signal

import nbkit
from nbkit.launch.supervision.leftovers import processes_of_run
from nbkit.store.record import RunState
from tests.launch.conftest import plugins, small, store
from tests.launch.terminals import begin, by_hand, launch_fault, terminals
from tests.waiting import wait_until

__all__ = ["by_hand", "plugins", "small", "store", "terminals"]


def test_a_rank_that_hangs_on_another_host_is_named_with_where_it_is(
    by_hand, terminals
):
    run = launch_fault(by_hand, "hang", 1, hang_timeout_seconds=60)
    terminals.paste(run.torchrun_line, 2)
    run.wait(600, raise_on_failure=False)

    assert run.state is RunState.FAILED
    assert (run.cause["kind"], run.cause["rank"]) == ("hang", 1)
    assert run.cause["node"] == run.record["attempts"][0]["ranks"][1]["node"]
    assert " in _fails\n" in run.cause["stacks"]["1"]
    assert " in _fails\n" in run.cause["stacks"]["0"]
    assert not processes_of_run(run.paths)


def test_the_ranks_of_a_supervisor_that_is_killed_end(by_hand, terminals):
    config = by_hand(model="slow", steps=10_000, checkpoint_period_steps=5)
    run = nbkit.launch(config)
    begin(run, terminals)
    wait_until(lambda: run.metrics("checkpoint"), "a checkpoint")
    os.kill(run.submission["supervisor"]["pid"], signal.SIGKILL)

    wait_until(lambda: run.state is RunState.LOST, "the supervisor's end")
    wait_until(lambda: not processes_of_run(run.paths), "the end of the ranks")
    terminals.close()
    run.resume()
    terminals.paste(run.torchrun_line, 2)
    wait_until(lambda: run.state is RunState.RUNNING, "the next attempt", 600)
    run.stop()
    assert run.state is RunState.STOPPED
