"""Faults of runs by hand that take patience to notice, or leave nobody to notice."""

from __future__ import annotations

import os
import signal
import threading

import nbkit
from nbkit.launch.run import Run
from nbkit.launch.supervision.leftovers import processes_of_run
from nbkit.store.processes import hostname
from nbkit.store.record import RunState
from tests.launch.conftest import plugins, small, store
from tests.launch.terminals import Terminals, by_hand, terminals
from tests.waiting import wait_until

__all__ = ["by_hand", "plugins", "small", "store", "terminals"]


def begin(run: Run, terminals: Terminals) -> None:
    """Paste a run's line on both hosts, and wait until the ranks train."""
    terminals.paste(run.torchrun_line, 2)
    wait_until(lambda: run.metrics(), "a step", 600)


def launch_fault(by_hand, how: str, bad: int, **fields) -> Run:
    """Launch a function of which one rank will fail in a known way."""
    config = by_hand()
    for field in ("engine", "nnodes", "gpus", "device", "manual"):
        fields[field] = getattr(config, field)
    return nbkit.launch(_fails, args=(how, bad), **fields)


def _fails(how, bad):
    import torch
    import torch.distributed as dist

    here = nbkit.context()
    dist.init_process_group("gloo")
    for step in range(1_000_000):
        nbkit.log({"step": step}, step=step)
        dist.all_reduce(torch.ones(1))
        if here.rank == bad and step == 3:
            if how == "exception":
                message = "the bad rank raises"
                raise ValueError(message)
            if how == "hang":
                threading.Event().wait()
            os.kill(os.getpid(), signal.SIGKILL)


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


def test_manual_ctrl_c_and_resume(by_hand, terminals, capsys):
    run = nbkit.launch(by_hand(model="slow", steps=10_000))
    begin(run, terminals)
    terminals.paste(run.torchrun_line)
    assert "nnodes=2. Paste the line once on each of 2 hosts" in terminals.screen(2)

    # Ctrl-C goes to the foreground group of a terminal: torchrun, and not its ranks.
    os.killpg(terminals.opened[1].pid, signal.SIGINT)
    run.wait(600, raise_on_failure=False)

    assert run.state is RunState.STOPPED
    assert run.cause["by"].startswith("torchrun on ")
    assert run.cause["by"].endswith(" (SIGINT)")
    assert run.cause["message"].endswith("after the current step")
    first = len(run.metrics())
    assert run.metrics("checkpoint")
    assert not processes_of_run(run.paths)

    old_line = run.torchrun_line
    capsys.readouterr()
    run.resume()
    assert run.torchrun_line != old_line
    assert run.torchrun_line in capsys.readouterr().out
    terminals.paste(run.torchrun_line, 2)
    wait_until(lambda: len(run.metrics()) > first, "a step of the next attempt", 600)
    run.stop()

    assert run.state is RunState.STOPPED
    assert run.cause["message"] == "stopped by user, after the current step"
    assert [attempt["number"] for attempt in run.record["attempts"]] == [0, 1]
    assert not processes_of_run(run.paths)


def test_manual_killed_torchrun(by_hand, terminals):
    run = nbkit.launch(by_hand(model="slow", steps=10_000))
    begin(run, terminals)
    terminals.opened[0].kill()
    run.wait(600, raise_on_failure=False)

    assert run.state is RunState.FAILED
    assert run.cause["kind"] == "node"
    assert run.cause["message"].startswith(f"host {hostname()}")
    assert "was lost: its torchrun has exited" in run.cause["message"]
    assert not processes_of_run(run.paths)


def test_manual_failing_rank(by_hand, terminals):
    run = launch_fault(by_hand, "exception", 1)
    terminals.paste(run.torchrun_line, 2)
    run.wait(600, raise_on_failure=False)

    cause = run.cause
    assert run.state is RunState.FAILED
    ended = run.record["attempts"][0]["ranks"][1]
    assert (cause["rank"], cause["node"]) == (1, f"{hostname()}-1")
    assert ended["node"] == cause["node"]
    assert cause["message"] == "ValueError: the bad rank raises"
    assert ", in _fails" in cause["traceback"]
    screens = terminals.screen(0) + terminals.screen(1)
    assert "ValueError: the bad rank raises" in screens
    assert not processes_of_run(run.paths)


def test_manual_stop_while_waiting(by_hand, terminals):
    run = nbkit.launch(by_hand())
    terminals.paste(run.torchrun_line)
    wait_until(lambda: run.queue and "1 running" in run.queue["reason"], "a host", 600)
    run.stop()

    assert run.state is RunState.STOPPED
    assert run.cause["message"] == "stopped by user, before its ranks were started"
    assert f"run {run.run_id} has ended." in terminals.screen(0)
