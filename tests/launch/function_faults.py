"""Each fault of one rank of a function, in a cell of a real kernel, as one round.

That one of them raises is in test_functions.py; tests/soak has every fault.
"""

from __future__ import annotations

import dataclasses
import time

import nbkit
from nbkit.launch.devices.claims import leases
from nbkit.launch.run import Run
from nbkit.launch.supervision.leftovers import processes_of_run
from nbkit.launch.supervision.rank_error import RankError
from nbkit.store.record import RunState, read_json
from tests.notebooks.kernel import Kernel
from tests.waiting import hang_limit, patient, wait_until

RANKS = 2

CELL = """
import ctypes, os, signal, threading, nbkit, torch
import torch.distributed as dist

def train(how, bad):
    here = nbkit.context()
    dist.init_process_group("gloo")
    for step in range(1000):
        nbkit.log({"step": step}, step=step)
        dist.all_reduce(torch.ones(1))
        if here.rank == bad and step == 3:
            FAULTS[how]()

def fails():
    raise ValueError("the bad rank raises")

FAULTS = {
    "exception": fails,
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGSEGV": lambda: ctypes.string_at(0),
    "hang": lambda: threading.Event().wait(),
    "out of memory": lambda: bytearray(1 << 60),
}
"""

LINES = {
    "exception": 'raise ValueError("the bad rank raises")',
    "SIGSEGV": '"SIGSEGV": lambda: ctypes.string_at(0),',
    "hang": '"hang": lambda: threading.Event().wait(),',
    "out of memory": '"out of memory": lambda: bytearray(1 << 60),',
}
"""The line of the cell on which each fault happens; SIGKILL leaves no word."""

EXPECTED = {
    "exception": {"kind": "exception", "signal": None},
    "SIGKILL": {"kind": "signal", "signal": "SIGKILL"},
    "SIGSEGV": {"kind": "signal", "signal": "SIGSEGV"},
    "hang": {"kind": "hang", "signal": None},
    "out of memory": {"kind": "out_of_memory", "signal": None},
}


def launch_fault(kernel: Kernel, how: str, bad: int) -> Run:
    """Launch a function of which the bad rank fails, where `CELL` was executed."""
    # The others beat too, or they would seem to be as far behind as the hung one.
    patience = hang_limit() if how == "hang" else patient(60)
    launch = (
        f"run = nbkit.launch(train, args=({how!r}, {bad}), gpus={RANKS}, device='cpu', "
        f"oversubscribe=True, hang_timeout_seconds={patience})"
    )
    return nbkit.attach(kernel.execute(launch, "run.run_id"))


def check_fault(run: Run, how: str, bad: int) -> float:
    """Check the cause of a failed run, and that no process or lease is left.

    Returns the seconds from its last step to its end, without the hang timeout.
    """
    run.wait(patient(180), raise_on_failure=False)
    cause = run.cause or {}
    assert run.state is RunState.FAILED
    assert cause["rank"] == bad, cause
    assert {key: cause[key] for key in EXPECTED[how]} == EXPECTED[how]
    if how in LINES:
        stack = cause["stacks"][str(bad)] if how == "hang" else cause["traceback"]
        lines = CELL.strip("\n").splitlines()
        line = next(n for n, text in enumerate(lines, 1) if LINES[how] in text)
        assert f", line {line}" in stack, stack
        assert "Cell In[" in stack, stack
        assert how != "exception" or "/nbkit/worker/" not in stack, stack
    if how != "hang":
        # gloo's own errors are known as such whatever their words are.
        for rank in set(range(RANKS)) - {bad}:
            error = read_json(run.paths.rank(0, rank).error)
            if error is not None:
                wordless = dataclasses.replace(RankError.from_dict(error), message="")
                assert wordless.is_of_a_neighbour(None), error
    assert not processes_of_run(run.paths)
    assert all(run.run_id not in holders for holders in leases("cpu").values())
    patience = run.config.hang_timeout_seconds if how == "hang" else 0
    return time.time() - run.metrics("log")[-1]["t"] - patience


STUBBORN_CELL = """
import signal, nbkit, torch

class Images(torch.utils.data.Dataset):
    def __len__(self): return 10**9
    def __getitem__(self, index): return torch.ones(8)

def refuse(number=None):
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)

def train():
    refuse()
    loader = torch.utils.data.DataLoader(
        Images(), num_workers=2, worker_init_fn=refuse, persistent_workers=True
    )
    for step, batch in enumerate(loader):
        nbkit.log({"sum": batch.sum()}, step=step)
"""


def check_stop(kernel: Kernel) -> float:
    """Stop a rank that ignores signals with its loading processes (`STUBBORN_CELL`).

    Returns the seconds from the request to the end, without the grace period.
    """
    launch = "run = nbkit.launch(train, device='cpu', oversubscribe=True)"
    run = nbkit.attach(kernel.execute(launch, "run.run_id"))
    # Supervisor and sampler, the rank, and its two loading processes.
    wait_until(lambda: len(processes_of_run(run.paths)) == 5, "all processes", 120)
    wait_until(lambda: run.metrics("log"), "a first step", 120)
    assert leases("cpu") != {}
    began = time.monotonic()
    run.stop(grace_seconds=1)
    assert run.state is RunState.STOPPED
    assert run.cause is not None
    assert run.cause["forced"] is True
    assert not processes_of_run(run.paths)
    assert leases("cpu") == {}
    return time.monotonic() - began - 1
